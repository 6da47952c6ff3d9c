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
    c.kernel(c.default, writes=(d,))
    c.trace.device_sync()
    c.kernel(c.default, reads=(d,), writes=(c.device(),))
    c.send(d)


@case(
    "08_cudamemcpy_to_mpi", "blocking copy from pageable memory to the device, send of the copy",
    CLEAN, differs="C1: CUDA returns when the source is staged, the transfer may still run",
)  # fmt: skip
def pageable_copy(c: Cuda) -> None:
    d = c.device()
    c.memset(d)
    c.trace.device_sync()
    c.memcpy(d, c.pageable())
    c.send(d)


@case(
    "09_cudamemcpy_default", "copy within registered memory, in the default direction, read", CLEAN
)
def registered(c: Cuda) -> None:
    p = c.pinned()
    c.memcpy(p, p)
    c.read(p)


@case("10_cudahostalloc", "pinned memory allocated in two ways, and freed", CLEAN)
def pinned(c: Cuda) -> None:
    c.pinned()
    c.pinned()
    c.free()
    c.free()


@both(
    "11_cuda_to_mpi_struct_of_buff",
    "kernels on two streams write buffers that a structure names, device synchronize, send",
)
def structure(c: Cuda, ordered: bool) -> None:
    first, second, one, two = c.device(), c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(first,))
    c.kernel(two, writes=(second,))
    c.kernel(two, writes=(second,))
    if ordered:
        c.trace.device_sync()
    c.send(second)


@both(
    "11_struct_of_buff, 13_struct_recursion",
    "the same, device synchronize, and the first stream writes the buffer of the second",
)
def structure_streams(c: Cuda, ordered: bool) -> None:
    first, second, one, two = c.device(), c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(first,))
    c.kernel(two, writes=(second,))
    if ordered:
        c.trace.device_sync()
    c.kernel(one, writes=(second,))


@both(
    "12_struct_ptr", "the structure itself is passed by pointer; device synchronize, send",
    fails=True,
)  # fmt: skip
def structure_pointer(c: Cuda, ordered: bool) -> None:
    structure(c, ordered)


@both("14_cuda_functor", "a lambda's captured pointer is written, event synchronize, host reads")
def functor(c: Cuda, ordered: bool) -> None:
    event(c, ordered)


@both(
    "15_cuda_memset_sync",
    "kernel on a blocking stream, fill of managed memory, another stream synchronized, host reads",
)
def memset(c: Cuda, ordered: bool) -> None:
    m, one, two = c.managed(), c.stream(), c.stream()
    c.kernel(one, writes=(m,))
    if ordered:
        c.memset(c.managed())
    c.kernel(two, writes=(c.managed(),))
    c.trace.stream_sync(two)
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
    two = c.stream()
    c.kernel(two, writes=(c.managed(),))
    c.trace.stream_sync(two)
    c.read(m)


@case(
    "16_cuda_hostalloc_implicit_sync, 16_cuda_malloc_implicit_sync",
    "kernel on a blocking stream, copy to the host on another", RACE,
)  # fmt: skip
def without_allocation(c: Cuda) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    c.memcpy_async(c.pageable(), d, two)


@case(
    "16_cuda_hostalloc_implicit_sync, 16_cuda_malloc_implicit_sync",
    "the same, with managed or device memory allocated in between", CLEAN, fails=True,
    differs="M3: an allocation gives no order, as cusan-tests say too",
)  # fmt: skip
def allocation(c: Cuda) -> None:
    without_allocation(c)  # an allocation leaves no record of an order


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
    m, s = c.managed(), c.stream()
    c.kernel(s, writes=(m,))
    c.trace.record(1, s)
    if ordered:
        c.trace.event_sync(1, query=True)
    c.read(m)


@both("18_cuda_to_mpi_event_query_busy_loop", "the same, and a send")
def event_query_send(c: Cuda, ordered: bool) -> None:
    event_query(c, ordered)  # a send reads as the host does


@both(
    "19_cuda_cudaMemcpyAsyncH2H_implicit_sync",
    "kernel on a blocking stream, blocking copy within the host, copy on another blocking stream",
)
def host_copy(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    if ordered:
        c.memcpy(c.pageable(), c.pageable())
    c.memcpy_async(c.pageable(), d, two)


@both(
    "19_cuda_cudaMemcpyAsyncH2H_implicit_sync_nonblocking",
    "the same with non-blocking streams, and a stream synchronize",
)
def host_copy_nonblocking(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(blocking=False), c.stream(blocking=False)
    c.kernel(one, writes=(d,))
    c.memcpy(c.pageable(), c.pageable())
    if ordered:
        c.trace.stream_sync(one)
    c.memcpy_async(c.pageable(), d, two)


@both(
    "19_cuda_to_mpi_send_cudaMemcpyAsyncH2H_implicit_sync",
    "kernel on a blocking stream, blocking copy within the host, send",
)
def host_copy_send(c: Cuda, ordered: bool) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d,))
    if ordered:
        c.memcpy(c.pageable(), c.pageable())
    c.send(d)


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
    "21_chunked_streams_example", "copies of chunks on streams, each waited for before its send",
    CLEAN,
)  # fmt: skip
def chunks(c: Cuda) -> None:
    d, h, kernel = c.device(), c.pinned(), c.stream()
    streams = [c.stream() for _ in range(4)]
    c.kernel(kernel, writes=(d,))
    c.trace.stream_sync(kernel)
    parts = [(16 * n, 16 * n + 16) for n in range(4)]
    for stream, part in zip(streams, parts):
        c.memcpy_async(h.part(*part), d.part(*part), stream)
    requests = []
    for stream, part in zip(streams, parts):
        c.trace.stream_sync(stream)
        requests.append(c.isend(h.part(*part)))
    for request in requests:
        c.finish(request)


@case("22_cuda_to_mpi_partial_buff_write", "kernel writes one half, the other is sent", CLEAN)
def partial(c: Cuda) -> None:
    d, s = c.device(), c.stream()
    c.kernel(s, writes=(d.part(0, 32),))
    c.trace.stream_sync(s)
    c.kernel(s, writes=(d.part(32, 64),))
    c.send(d.part(0, 32))
    c.trace.stream_sync(s)
    c.send(d.part(32, 64))


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
    m, d, one, two = c.managed(), c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(m,))
    c.kernel(c.default, writes=(d,))
    c.kernel(two, writes=(d,))
    if ordered:
        c.trace.stream_sync(two)
    c.read(m)


@both("26_malloc_pitch", "kernel writes a pitched buffer, device synchronize, send")
def pitch(c: Cuda, ordered: bool) -> None:
    cuda_to_mpi(c, ordered)


@both(
    "27_cuda_memcpy2d_implicit_syn",
    "kernel on a blocking stream, blocking copy of rows to the host, copy of them on another one",
)
def copy_rows(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    if ordered:
        c.memcpy(c.pageable().rows(4, 12, 16), d.rows(4, 12, 16))
    c.memcpy_async(c.pageable().rows(4, 12, 16), d.rows(4, 12, 16), two)


@both(
    "28_cuda_memset2d_implicit_syn",
    "the same with a fill of rows of another buffer in between",
)
def fill_rows(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    if ordered:
        c.memset(c.device().rows(4, 12, 16))
    c.memcpy_async(c.pageable().rows(4, 12, 16), d.rows(4, 12, 16), two)


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
    c.memcpy_async(c.pageable(), d, two)


@both("33_tsan_wait_event", "the reader's stream waits for an event of the writer's")
def wait_event(c: Cuda, ordered: bool) -> None:
    d, one, two = c.device(), c.stream(), c.stream()
    c.kernel(one, writes=(d,))
    c.trace.record(1, one)
    if ordered:
        c.trace.wait(1, two)
    c.kernel(two, reads=(d,), writes=(c.device(),))
    c.memcpy(c.pageable(), d)


@both(
    "34_negative_array", "kernel writes before its pointer, device synchronize, host reads",
    fails=True,
)  # fmt: skip
def negative(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m.part(0, 32),))  # the pointer is to byte 32
    if ordered:
        c.trace.device_sync()
    c.read(m.part(0, 32))


@both(
    "35_struct_null",
    "a structure with a null pointer beside the buffer written, device synchronize, host reads",
)
def null(c: Cuda, ordered: bool) -> None:
    m = c.managed()
    c.kernel(c.default, writes=(m,))
    if ordered:
        c.trace.device_sync()
    c.read(m)


@both(
    "multi_gpu/01_device_sync",
    "kernel on device 0, which is synchronized; then kernel and synchronize on device 1; read",
)
def devices(c: Cuda, ordered: bool) -> None:
    m, other = c.managed(), c.stream(device=1)
    c.kernel(c.default, writes=(m,))
    if ordered:
        c.trace.device_sync(0)
    c.kernel(other, writes=(c.managed(),))
    c.trace.device_sync(1)
    c.read(m)


@both("multi_gpu/02_device_sync_event", "event of device 0 synchronized while device 1 is current")
def devices_event(c: Cuda, ordered: bool) -> None:
    event(c, ordered)
