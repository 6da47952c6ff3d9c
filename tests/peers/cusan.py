"""The run-time tests of CuSan, a checker for CUDA and MPI in C++: tudasc/cusan, test/runtime."""

from __future__ import annotations

from tests.peers.case import CLEAN, RACE, Cases
from tests.peers.cuda import Cuda

CUSAN = Cases("CuSan", "tudasc/cusan, test/runtime")
case, both = CUSAN.case, CUSAN.both


@both("02_event", "kernel writes managed memory, event synchronize, host reads")
def event(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m,))
    c.trace.record(1, c.default)
    if ordered:
        c.trace.event_sync(1)
    c.read(m)


@both("03_cuda_to_mpi, 30_tsan_annotate_cuda_to_mpi", "kernel writes, device synchronize, send")
def cuda_to_mpi(c: Cuda, ordered: bool) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d,))
    if ordered:
        c.trace.device_sync()
    c.send(d)


@both("04_mpi_to_cuda", "receive under way, wait for it, kernel writes")
def mpi_to_cuda(c: Cuda, ordered: bool) -> None:
    d = c.device()
    request = c.irecv(d)
    if ordered:
        c.finish(request)
    c.kernel(c.default, writes=(d,))


@both("05_cuda_to_mpi_stream", "kernel on a user stream, stream synchronize, send")
def user_stream(c: Cuda, ordered: bool) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    if ordered:
        c.trace.stream_sync(s)
    c.send(d)


@both("06_cuda_to_mpi_event", "kernel writes, event synchronize, send")
def event_send(c: Cuda, ordered: bool) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d,))
    c.trace.record(1, c.default)
    if ordered:
        c.trace.event_sync(1)
    c.send(d)


@case("07_cuda_to_mpi_read", "kernel reads, send reads", CLEAN)
def two_reads(c: Cuda) -> None:
    d = c.device()
    c.kernel(c.default, reads=(d,))
    c.send(d)


@case(
    "08_cudamemcpy_to_mpi", "blocking copy from pageable memory to the device, send of the copy",
    CLEAN, differs="C1: CUDA returns when the source is staged, the transfer may still run",
)  # fmt: skip
def pageable_copy(c: Cuda) -> None:
    d = c.device()
    c.memcpy(d, c.pageable())
    c.send(d)


@case("09_cudamemcpy_default", "copy of the default direction to registered memory, read", CLEAN)
def registered(c: Cuda) -> None:
    d, p = c.device(), c.pinned()
    c.kernel(c.default, writes=(d,))
    c.memcpy(p, d)
    c.read(p)


@case("10_cudahostalloc", "host and kernel use pinned memory in turn", CLEAN)
def pinned(c: Cuda) -> None:
    p = c.pinned()
    c.write(p)
    c.kernel(c.default, reads=(p,), writes=(p,))
    c.trace.device_sync()
    c.read(p)


@both(
    "11_cuda_to_mpi_struct_of_buff, 13_struct_recursion",
    "kernel writes buffers that a structure names, device synchronize, send",
)
def structure(c: Cuda, ordered: bool) -> None:
    one, two = c.device(), c.device()
    c.kernel(c.default, writes=(one, two))
    if ordered:
        c.trace.device_sync()
    c.send(two)


@both("11_struct_of_buff", "two streams write one buffer, the first one waited for")
def structure_streams(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    if ordered:
        c.trace.stream_sync(one)
    c.kernel(two, writes=(d,))


@case("12_struct_ptr", "the structure itself is passed by pointer", RACE, fails=True)
def structure_pointer(c: Cuda) -> None:
    structure_streams(c, False)


@both("14_cuda_functor", "a lambda's captured pointer is written, device synchronize, host reads")
def functor(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m,))
    if ordered:
        c.trace.device_sync()
    c.read(m)


@both("15_cuda_memset_sync", "kernel on a blocking stream, fill of managed memory, host reads")
def memset(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    if ordered:
        c.memset(c.managed())
    c.read(m)


@both(
    "15_cuda_memset_sync_nonblocking", "kernel on a non-blocking stream, fill, stream synchronize"
)
def memset_nonblocking(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream(blocking=False)
    c.kernel(s, writes=(m,))
    c.memset(c.managed())
    if ordered:
        c.trace.stream_sync(s)
    c.read(m)


@case("16_cuda_hostalloc_implicit_sync", "pinned memory allocated in between", RACE, fails=True)
def host_alloc(c: Cuda) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    c.pinned()
    c.read(m)


@case("16_cuda_malloc_implicit_sync", "device memory allocated in between", RACE, fails=True)
def malloc(c: Cuda) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    c.device()
    c.read(m)


@both("17_cuda_stream_query_busy_loop", "kernel, stream queried until done, host reads")
def stream_query(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    if ordered:
        c.trace.stream_sync(s, query=True)
    c.read(m)


@both(
    "18_cuda_event_query_busy_loop, 18_cuda_event_with_flags_query_busy_loop",
    "kernel, event queried until done, host reads",
)
def event_query(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m,))
    c.trace.record(1, c.default)
    if ordered:
        c.trace.event_sync(1, query=True)
    c.read(m)


@both("18_cuda_to_mpi_event_query_busy_loop", "kernel, event queried until done, send")
def event_query_send(c: Cuda, ordered: bool) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d,))
    c.trace.record(1, c.default)
    if ordered:
        c.trace.event_sync(1, query=True)
    c.send(d)


@both(
    "19_cuda_cudaMemcpyAsyncH2H_implicit_sync, 19_cuda_to_mpi_send_…",
    "kernel on a blocking stream, asynchronous copy within the host on the default stream, read",
)
def host_copy(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    if ordered:
        c.memcpy_async(c.pinned(), c.pinned(), c.default)
    c.read(m)


@both(
    "19_cuda_cudaMemcpyAsyncH2H_implicit_sync_nonblocking",
    "the same with a non-blocking stream, and a stream synchronize",
)
def host_copy_nonblocking(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream(blocking=False)
    c.kernel(s, writes=(m,))
    c.memcpy_async(c.pinned(), c.pinned(), c.default)
    if ordered:
        c.trace.stream_sync(s)
    c.read(m)


@both(
    "20_cuda_default_stream_sync, 20_cuda_to_mpi_send_ds_sync_w_r",
    "kernel on a blocking stream, kernel on the default stream, which is synchronized, read",
)
def default_sync(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    c.kernel(c.default, writes=(c.device(),))
    if ordered:
        c.trace.stream_sync(c.default)
    c.read(m)


@case(
    "21_chunked_streams_example", "chunks on four streams, each waited for before its send", CLEAN
)
def chunks(c: Cuda) -> None:
    d, p = c.device(), c.pinned()
    streams = [c.stream() for _ in range(4)]
    for n, s in enumerate(streams):
        part = (16 * n, 16 * n + 16)
        c.kernel(s, writes=(d.part(*part),))
        c.memcpy_async(p.part(*part), d.part(*part), s)
    for n, s in enumerate(streams):
        c.trace.stream_sync(s)
        c.send(p.part(16 * n, 16 * n + 16))


@case("22_cuda_to_mpi_partial_buff_write", "kernel writes one half, the other is sent", CLEAN)
def partial(c: Cuda) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d.part(32, 64),))
    c.send(d.part(0, 32))


@both(
    "23_cuda_default_stream_post_sync",
    "kernel on the default stream, kernel on a blocking stream, which is synchronized, read",
)
def post_sync(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(c.default, writes=(m,))
    c.kernel(s, writes=(c.device(),))
    if ordered:
        c.trace.stream_sync(s)
    c.read(m)


@both(
    "23_cuda_default_stream_post_sync_nonblocking",
    "the same with a non-blocking stream, and a device synchronize",
)
def post_sync_nonblocking(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream(blocking=False)
    c.kernel(c.default, writes=(m,))
    c.kernel(s, writes=(c.device(),))
    c.trace.stream_sync(s)
    if ordered:
        c.trace.device_sync()
    c.read(m)


@both(
    "24_cuda_sync_stream_default_nonblocking",
    "default stream synchronized after a kernel on a stream that is made blocking",
)
def default_nonblocking(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream(blocking=ordered)
    c.kernel(s, writes=(m,))
    c.trace.stream_sync(c.default)
    c.read(m)


@both(
    "25_cuda_default_stream_double_sync",
    "kernels on a blocking stream, the default stream, another one, which is synchronized, read",
)
def double_sync(c: Cuda, ordered: bool) -> None:
    m, one, two = c.managed(), c.stream(), c.stream()
    c.kernel(one, writes=(m,))
    c.kernel(c.default, writes=(c.device(),))
    c.kernel(two, writes=(c.device(),))
    if ordered:
        c.trace.stream_sync(two)
    c.read(m)


@both("26_malloc_pitch", "kernel writes the rows of a pitched buffer, device synchronize, send")
def pitch(c: Cuda, ordered: bool) -> None:
    d = c.device()
    c.kernel(c.default, writes=(d.rows(4, 12, 16),))
    if ordered:
        c.trace.device_sync()
    c.send(d.rows(2, 12, 32))


@both("27_cuda_memcpy2d_implicit_sync", "kernel, blocking copy of rows to the host, send")
def copy_rows(c: Cuda, ordered: bool) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    if ordered:
        c.memcpy(c.pageable().rows(4, 12, 16), c.device().rows(4, 12, 16))
    c.send(d)


@both("28_cuda_memset2d_implicit_sync", "kernel, fill of rows of managed memory, read")
def fill_rows(c: Cuda, ordered: bool) -> None:
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    if ordered:
        c.memset(c.managed().rows(4, 12, 16))
    c.read(m)


@both("31_tsan_cuda_event", "event synchronize between writers on two streams")
def two_writers(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    c.trace.record(1, one)
    if ordered:
        c.trace.event_sync(1)
    c.kernel(two, writes=(d,))


@both("32_tsan_async_copy", "kernel, stream synchronize, copy on another stream of what it wrote")
def async_copy(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    if ordered:
        c.trace.stream_sync(one)
    c.memcpy_async(c.device(), d, two)


@both("33_tsan_wait_event", "the reader's stream waits for an event of the writer's")
def wait_event(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    c.trace.record(1, one)
    if ordered:
        c.trace.wait(1, two)
    c.kernel(two, reads=(d,))


@case("34_negative_array", "kernel writes before its pointer, host reads", RACE, fails=True)
def negative(c: Cuda) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m.part(28, 32),))  # the pointer is to byte 32
    c.read(m.part(0, 32))


@case("35_struct_null", "a structure with a null pointer beside the buffer that races", RACE)
def null(c: Cuda) -> None:
    structure_streams(c, False)


@both("multi_gpu/01_device_sync", "kernel on device 0, synchronize of device 1, then of device 0")
def devices(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.stream(device=1)
    c.kernel(c.default, writes=(m,))
    c.trace.device_sync(1)
    if ordered:
        c.trace.device_sync(0)
    c.read(m)


@both("multi_gpu/02_device_sync_event", "event of device 0 synchronized while device 1 is current")
def devices_event(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m,))
    c.trace.record(1, c.default)
    c.kernel(c.stream(device=1), writes=(c.managed(),))
    if ordered:
        c.trace.event_sync(1)
    c.read(m)
