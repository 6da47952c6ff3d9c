"""The test suite that compares checkers for CUDA and MPI: tudasc/cusan-tests."""

from __future__ import annotations

from tests.peers.case import CLEAN, RACE, Cases
from tests.peers.cuda import Buffer, Cuda

CUSAN_TESTS = Cases("cusan-tests", "tudasc/cusan-tests, testsuite")
case, both = CUSAN_TESTS.case, CUSAN_TESTS.both


def _between(c: Cuda, blocking: bool) -> tuple[Buffer, int]:
    d, one = c.device(), c.stream(blocking)
    c.kernel(one, writes=(d,))
    return d, c.stream(blocking)


def _allocation(kind: str, blocking: bool) -> None:
    def build(c: Cuda) -> None:
        d, two = _between(c, blocking)
        c.device() if kind == "cudaMalloc" else c.pinned()
        c.memcpy_async(c.device(), d, two)

    def build_free(c: Cuda) -> None:
        d, two = _between(c, blocking)
        c.free()
        c.memcpy_async(c.device(), d, two)

    word = "blocking" if blocking else "non-blocking"
    suffix = "Block" if blocking else ""
    freed = "cudafree" if kind == "cudaMalloc" else "cudafreeHost"
    case(
        f"cuda-only/_{kind}{suffix}…_nok",
        f"kernel on a {word} stream, an allocation, copy on another stream", RACE,
    )(build)  # fmt: skip
    case(
        f"cuda-only/_{freed}{suffix}…",
        f"kernel on a {word} stream, unrelated memory freed, copy on another stream", CLEAN,
    )(build_free)  # fmt: skip


for _kind in ("cudaMalloc", "cudaHostAlloc"):
    for _blocking in (False, True):
        _allocation(_kind, _blocking)


@both(
    "cuda-only/_ds_defuser_managed_w_…",
    "kernels on a blocking stream, the default stream, another one, which is synchronized, read",
)
def chain(c: Cuda, ordered: bool) -> None:
    m, one, two = c.managed(), c.stream(), c.stream()
    c.kernel(one, writes=(m,))
    c.kernel(c.default, writes=(c.device(),))
    c.kernel(two, writes=(c.device(),))
    if ordered:
        c.trace.stream_sync(two)
    c.read(m)


@case("cuda-only/_mc_4_def_managed_w__nok", "blocking copy within the device, host reads", RACE)
def device_copy(c: Cuda) -> None:
    m = c.managed()
    c.memcpy(m, c.device())
    c.read(m)


@case(
    "cuda-only/_mca_2_defuser_malloc_w_, cuda-to-mpi/send_mca_2_defuser_…",
    "kernel on the default stream, copy within the host on a blocking stream, send", CLEAN,
)  # fmt: skip
def host_copy(c: Cuda) -> None:
    d, s = c.device(), c.stream()
    c.kernel(c.default, writes=(d,))
    c.memcpy_async(c.pinned(), c.pinned(), s)
    c.send(d)


@case(
    "cuda-to-mpi/send_ds_def_malloc_r_r, send_ds_def_managed_r_r, send_ss_user_malloc_r_r",
    "kernel reads, send reads", CLEAN,
)  # fmt: skip
def reads(c: Cuda) -> None:
    d = c.device()
    c.kernel(c.default, reads=(d,))
    c.send(d)


@both("cuda-to-mpi/send_ds_def_malloc_w_r", "kernel writes, device synchronize, send")
def device_sync(c: Cuda, ordered: bool) -> None:
    _sent(c, c.device(), ordered)


@both(
    "cuda-to-mpi/send_ds_def_managed_w_r, …_functor",
    "kernel writes managed memory, device synchronize, send",
)
def managed(c: Cuda, ordered: bool) -> None:
    _sent(c, c.managed(), ordered)


def _sent(c: Cuda, buffer: Buffer, ordered: bool) -> None:
    c.kernel(c.default, writes=(buffer,))
    if ordered:
        c.trace.device_sync()
    c.send(buffer)


@both("cuda-to-mpi/send_eq_…", "kernel writes, event queried until done, send")
def event_query(c: Cuda, ordered: bool) -> None:
    _event(c, ordered, query=True)


@both("cuda-to-mpi/send_es_…", "kernel writes, event synchronize, send")
def event_sync(c: Cuda, ordered: bool) -> None:
    _event(c, ordered, query=False)


def _event(c: Cuda, ordered: bool, *, query: bool) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d,))
    c.trace.record(1, c.default)
    if ordered:
        c.trace.event_sync(1, query=query)
    c.send(d)


@case("cuda-to-mpi/send_mc_def_malloc_w_r", "blocking copy to the host, send", CLEAN)
def blocking_copy(c: Cuda) -> None:
    d, h = c.device(), c.pageable()
    c.kernel(c.default, writes=(d,))
    c.memcpy(h, d)
    c.send(d)
    c.send(h)


@both(
    "cuda-to-mpi/send_mca_1_defuser_…",
    "kernel on the default stream, asynchronous copy to pageable memory on a blocking stream, send",
)
def pageable(c: Cuda, ordered: bool) -> None:
    d, h, s = c.device(), c.pageable(), c.stream()
    c.kernel(c.default, writes=(d,))
    if ordered:
        c.memcpy_async(h, c.device(), s)
    c.send(d)


@both(
    "cuda-to-mpi/send_mca_4_user_…", "asynchronous copy within the device, stream synchronize, send"
)
def device_copy_async(c: Cuda, ordered: bool) -> None:
    d, s = c.device(), c.stream()
    c.memcpy_async(d, c.device(), s)
    if ordered:
        c.trace.stream_sync(s)
    c.send(d)


@both("cuda-to-mpi/send_mca_user_…", "kernel and copy on one user stream, stream synchronize, send")
def copy_user(c: Cuda, ordered: bool) -> None:
    d, p, s = c.device(), c.pinned(), c.stream()
    c.kernel(s, writes=(d,))
    c.memcpy_async(p, d, s)
    if ordered:
        c.trace.stream_sync(s)
    c.send(p)


@both("cuda-to-mpi/send_ms_def_…", "fill of device memory, device synchronize, send")
def fill_device(c: Cuda, ordered: bool) -> None:
    d = c.device()
    c.memset(d)
    if ordered:
        c.trace.device_sync()
    c.send(d)


@case("cuda-to-mpi/send_ms_pinned_def_…", "fill of pinned memory, send", CLEAN)
def fill_pinned(c: Cuda) -> None:
    p = c.pinned()
    c.memset(p)
    c.send(p)


@case(
    "cuda-to-mpi/send_ms_pinned_defuser_…",
    "kernel on a blocking stream, fill of pinned memory, send", CLEAN,
)  # fmt: skip
def fill_pinned_user(c: Cuda) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    c.memset(c.pinned())
    c.send(d)


@case(
    "cuda-to-mpi/send_msa_pinned_defuser_…_nok",
    "kernel on a blocking stream, asynchronous fill of pinned memory, send", RACE,
)  # fmt: skip
def fill_async(c: Cuda) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    c.memset_async(c.pinned(), c.default)
    c.send(d)


@case(
    "cuda-to-mpi/send_msa_pinned_user_…_nok",
    "asynchronous fill of pinned memory on a user stream, send", RACE,
)  # fmt: skip
def fill_async_user(c: Cuda) -> None:
    p, s = c.pinned(), c.stream()
    c.memset_async(p, s)
    c.send(p)


@both("cuda-to-mpi/send_sq_user_…", "kernel writes, stream queried until done, send")
def stream_query(c: Cuda, ordered: bool) -> None:
    _stream(c, ordered, query=True)


@both("cuda-to-mpi/send_ss_user_malloc_w_r", "kernel writes, stream synchronize, send")
def stream_sync(c: Cuda, ordered: bool) -> None:
    _stream(c, ordered, query=False)


def _stream(c: Cuda, ordered: bool, *, query: bool) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    if ordered:
        c.trace.stream_sync(s, query=query)
    c.send(d)


@both("mpi-to-cuda/irecv_ds_def_malloc_w_w", "receive completes before the kernel writes")
def receive(c: Cuda, ordered: bool) -> None:
    _received(c, c.device(), ordered)


@both("mpi-to-cuda/irecv_ds_def_managed_w_w", "the same with managed memory")
def receive_managed(c: Cuda, ordered: bool) -> None:
    _received(c, c.managed(), ordered)


def _received(c: Cuda, buffer: Buffer, ordered: bool) -> None:
    request = c.irecv(buffer)
    if ordered:
        c.finish(request)
    c.kernel(c.default, writes=(buffer,))


@both("mpi-to-cuda/isend_ds_def_malloc_w_r", "send completes before the kernel overwrites")
def send(c: Cuda, ordered: bool) -> None:
    d = c.device()
    request = c.isend(d)
    if ordered:
        c.finish(request)
    c.kernel(c.default, writes=(d,))
