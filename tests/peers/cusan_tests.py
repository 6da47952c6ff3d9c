"""The test suite that compares checkers for CUDA and MPI: tudasc/cusan-tests."""

from __future__ import annotations

from tests.peers.case import CLEAN, RACE, Cases
from tests.peers.cuda import Buffer, Cuda

CUSAN_TESTS = Cases("cusan-tests", "tudasc/cusan-tests, testsuite")
case, both = CUSAN_TESTS.case, CUSAN_TESTS.both


def _allocation(call: str, kernels: str, verdict: str) -> None:
    """A kernel writes, memory is allocated or freed, and another stream uses what was written."""

    def build(c: Cuda) -> None:
        d, one, two = c.device(), c.stream(), c.stream()
        c.kernel(one, writes=(d,))
        if verdict == CLEAN:
            c.free()
        if kernels == "kernel and copy":
            c.kernel(two, writes=(d,))
        c.memcpy_async(c.pageable(), d, two)

    what = "unrelated memory freed" if verdict == CLEAN else "an allocation"
    text = f"kernel on a blocking stream, {what}, {kernels} on another"
    case(f"cuda-only/_{call}", text, verdict)(build)


for _call in ("cudaMalloc", "cudaHostAlloc"):
    _allocation(f"{_call}_user_malloc__nok", "kernel and copy", RACE)
    _allocation(f"{_call}Block_user_malloc__nok", "copy", RACE)
for _call, _end in (("cudafree", "_user_malloc_w_"), ("cudafreeHost", "_user_managed_w_")):
    _allocation(f"{_call}{_end}", "kernel and copy", CLEAN)
    _allocation(f"{_call}Block{_end}", "copy", CLEAN)


@both(
    "cuda-only/_ds_defuser_managed_w_",
    "kernels on a blocking stream, the default stream, another one, which is synchronized, read",
)
def chain(c: Cuda, ordered: bool) -> None:
    m, d, one, two = c.managed(), c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(m,))
    c.kernel(c.default, writes=(d,))
    c.kernel(two, writes=(d,))
    if ordered:
        c.trace.stream_sync(two)
    c.read(m)


@case(
    "cuda-only/_mc_4_def_managed_w__nok",
    "kernel on the default stream, copy within the device, host reads", RACE,
)  # fmt: skip
def device_copy(c: Cuda) -> None:
    m, d = c.managed(), c.device()
    c.kernel(c.default, writes=(m,))
    c.memcpy(d, d)
    c.read(m)


@case(
    "cuda-only/_mca_2_defuser_malloc_w_, cuda-to-mpi/send_mca_2_defuser_malloc_w_r",
    "kernel on the default stream, copy within the host on a blocking stream, read or send", CLEAN,
)  # fmt: skip
def host_copy(c: Cuda) -> None:
    d, h, s = c.device(), c.pageable(), c.stream()
    c.kernel(c.default, writes=(d,))
    c.memcpy_async(h, h, s)
    c.send(d)


@case(
    "cuda-to-mpi/send_ds_def_malloc_r_r, send_ds_def_managed_r_r, send_ss_user_malloc_r_r",
    "kernel reads, send reads", CLEAN,
)  # fmt: skip
def reads(c: Cuda) -> None:
    d = c.device()
    c.kernel(c.default, reads=(d,), writes=(c.device(),))
    c.send(d)


@both("cuda-to-mpi/send_ds_def_malloc_w_r", "kernel writes, device synchronize, send")
def device_sync(c: Cuda, ordered: bool) -> None:
    _sent(c, c.device(), ordered)


@both(
    "cuda-to-mpi/send_ds_def_managed_w_r, send_ds_def_managed_w_r_functor",
    "kernel writes managed memory, device synchronize, send",
)
def managed(c: Cuda, ordered: bool) -> None:
    _sent(c, c.managed(), ordered)


def _sent(c: Cuda, buffer: Buffer, ordered: bool) -> None:
    c.kernel(c.default, writes=(buffer,))
    if ordered:
        c.trace.device_sync()
    c.send(buffer)


@both("cuda-to-mpi/send_eq_def_malloc_w_r", "kernel writes, event queried until done, send")
def event_query(c: Cuda, ordered: bool) -> None:
    _event(c, ordered, query=True)


@both("cuda-to-mpi/send_es_def_malloc_w_r", "kernel writes, event synchronize, send")
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
    d = c.device()
    c.kernel(c.default, writes=(d,))
    c.memcpy(c.pageable(), d)
    c.send(d)


_STAGED = "C4: it returns when the bytes are there"


@case(
    "cuda-to-mpi/send_mca_1_defuser_malloc_w_r_nok",
    "kernel on the default stream, asynchronous copy to pageable memory on a blocking one, send",
    RACE, differs=_STAGED,
)  # fmt: skip
def pageable(c: Cuda) -> None:
    _pageable(c, c.default, ordered=False)


@case("cuda-to-mpi/send_mca_1_defuser_malloc_w_r", "the same, stream synchronize, send", CLEAN)
def pageable_waited(c: Cuda) -> None:
    _pageable(c, c.default, ordered=True)


@case(
    "cuda-to-mpi/send_mca_user_malloc_w_r_nok",
    "kernel and asynchronous copy to pageable memory on one stream, send", RACE, differs=_STAGED,
)  # fmt: skip
def pageable_user(c: Cuda) -> None:
    _pageable(c, None, ordered=False)


@case("cuda-to-mpi/send_mca_user_malloc_w_r", "the same, stream synchronize, send", CLEAN)
def pageable_user_waited(c: Cuda) -> None:
    _pageable(c, None, ordered=True)


def _pageable(c: Cuda, kernels: int | None, *, ordered: bool) -> None:
    """The kernel runs on a stream, or on that of the copy."""
    d, s = c.device(), c.stream()
    c.kernel(s if kernels is None else kernels, writes=(d,))
    c.memcpy_async(c.pageable(), d, s)
    if ordered:
        c.trace.stream_sync(s)
    c.send(d)


@both(
    "cuda-to-mpi/send_mca_4_user_malloc_w_r",
    "kernel and a copy within the device on one stream, stream synchronize, send",
)
def device_copy_async(c: Cuda, ordered: bool) -> None:
    d, to, source, s = c.device(), c.device(), c.device(), c.stream()
    c.memset_async(source, s)
    c.trace.stream_sync(s)
    c.kernel(s, writes=(d,))
    c.memcpy_async(to, source, s)
    if ordered:
        c.trace.stream_sync(s)
    c.send(d)


@both(
    "cuda-to-mpi/send_ms_def_malloc_w_r",
    "kernel, fill of other device memory, device synchronize, send",
)
def fill_device(c: Cuda, ordered: bool) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d,))
    c.memset(c.device())
    if ordered:
        c.trace.device_sync()
    c.send(d)


@case(
    "cuda-to-mpi/send_ms_pinned_def_malloc_w_r",
    "kernel on the default stream, fill of pinned memory, send", CLEAN,
)  # fmt: skip
def fill_pinned(c: Cuda) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d,))
    c.memset(c.pinned())
    c.send(d)


@case(
    "cuda-to-mpi/send_ms_pinned_defuser_malloc_w_r",
    "kernel on a blocking stream, fill of pinned memory, send", CLEAN,
)  # fmt: skip
def fill_pinned_user(c: Cuda) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    c.memset(c.pinned())
    c.send(d)


@case(
    "cuda-to-mpi/send_msa_pinned_defuser_malloc_w_r_nok",
    "kernel on the default stream, asynchronous fill of pinned memory on a blocking one, send",
    RACE,
)  # fmt: skip
def fill_async(c: Cuda) -> None:
    d, s = c.device(), c.stream()
    c.kernel(c.default, writes=(d,))
    c.memset_async(c.pinned(), s)
    c.send(d)


@case(
    "cuda-to-mpi/send_msa_pinned_user_malloc_w_r_nok",
    "kernel on a blocking stream, asynchronous fill of pinned memory on another one, send", RACE,
)  # fmt: skip
def fill_async_user(c: Cuda) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    c.memset_async(c.pinned(), two)
    c.send(d)


@both("cuda-to-mpi/send_sq_user_malloc_w_r", "kernel writes, stream queried until done, send")
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
