"""The hooks of the CUDA recorder: callbacks of torch's GPU trace, and methods it leaves out."""

from __future__ import annotations

import _thread
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda import _gpu_trace as trace

from streamsan.model import records as r
from streamsan.record._cuda_streams import GraphCapture
from streamsan.virtual.memory import PINNED

if TYPE_CHECKING:
    from streamsan.record._cuda import CudaRecorder


def install_patches(recorder: CudaRecorder) -> None:
    """Hook everything, for the rest of the process."""
    _trace(recorder)
    _queries(recorder)
    if recorder.arena is None:  # an arena tells of this by itself
        _cache(recorder)
    _graphs(recorder)
    _host_reads(recorder)
    _printing(recorder)
    _contexts(recorder)
    _backward(recorder)


def _trace(recorder: CudaRecorder) -> None:
    """Callbacks from torch's C++ code, in whichever thread; kept while an operator is at work."""
    observer, streams, blocks = recorder.observer, recorder.streams, recorder.blocks

    held = functools.partial(_held, recorder)

    def record(event: int, stream: int, thread: int, stack: int) -> None:
        streams.record(event, streams.of_handle(stream), thread, stack)

    def wait(event: int, stream: int, thread: int, stack: int) -> None:
        streams.wait(event, streams.of_handle(stream), thread, stack)

    def allocated(address: int, thread: int, stack: int) -> None:
        owner = streams.current(torch.cuda.current_device())
        blocks.allocated(address, owner, thread, stack)

    def freed(address: int) -> None:
        born = blocks.take(address)  # now: an operator may be handed the address again
        if born is not None:
            held(lambda thread, stack: observer.emit(r.Free(born.number, thread, stack)))()

    trace.register_callback_for_event_record(held(record))
    trace.register_callback_for_event_wait(held(wait))
    trace.register_callback_for_event_synchronization(
        held(lambda event, *where: observer.emit(r.EventSync(streams.event(event), *where)))
    )
    trace.register_callback_for_event_deletion(
        held(lambda event, thread, stack: streams.forget_event(event, thread))
    )
    trace.register_callback_for_stream_synchronization(
        held(lambda stream, *where: observer.emit(r.StreamSync(streams.of_handle(stream), *where)))
    )
    trace.register_callback_for_device_synchronization(
        held(lambda *where: observer.emit(r.DeviceSync(torch.cuda.current_device(), *where)))
    )
    if recorder.arena is None:  # as above
        trace.register_callback_for_memory_allocation(held(allocated, first=True))
        trace.register_callback_for_memory_deallocation(freed)
    torch._C._activate_gpu_trace()


def _held(recorder: CudaRecorder, function: Callable[..., None], first: bool = False) -> Any:
    """A callback that calls ``function(*args, thread, stack)``, after the operator at work unless
    it must come `first`.
    """
    observer = recorder.observer

    def callback(*args: Any) -> None:
        if not observer.recording or not recorder.enabled:
            return
        try:
            thread, stack = observer.thread(), recorder.stack()
            inside = recorder.local.inside
            if inside is None or first:
                function(*args, thread, stack)
            else:
                inside.append(lambda: function(*args, thread, stack))
        except Exception as error:
            observer.internal_error(error)

    return callback


def _wrap(owner: Any, name: str, after: Callable[..., None], recorder: CudaRecorder) -> None:
    """Call ``after(result, *args)`` after each call of a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if recorder.enabled and recorder.observer.recording:
            recorder._guarded(lambda: after(result, *args))
        return result

    setattr(owner, name, method)


def _queries(recorder: CudaRecorder) -> None:
    """Rule E4: a query that answers "done" counts as a wait. The trace does not show queries."""
    observer, streams = recorder.observer, recorder.streams

    def event(done: bool, queried: Any) -> None:
        if done and queried.cuda_event:
            observer.emit(
                r.EventSync(
                    streams.event(queried.cuda_event), observer.thread(), observer.stack(), True
                )
            )

    def stream(done: bool, queried: Any) -> None:
        if done:
            timeline = streams.define(queried.device_index, queried.cuda_stream)
            observer.emit(r.StreamSync(timeline, observer.thread(), observer.stack(), True))

    _wrap(torch.cuda.Event, "query", event, recorder)
    _wrap(torch.cuda.Stream, "query", stream, recorder)
    born = torch.cuda.Stream.__new__
    # torch makes a device's pool under a C++ once-flag, holding the interpreter lock, and its trace
    # runs Python in there: a second thread that wants a stream meanwhile would wait for the flag
    # with the interpreter lock in its hand, for ever.
    one_at_a_time = _thread.allocate_lock()

    def new_stream(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with one_at_a_time:
            stream = born(cls, *args, **kwargs)  # type: ignore[no-untyped-call]
        if recorder.enabled and observer.recording:
            recorder._guarded(lambda: streams.define(stream.device_index, stream.cuda_stream))
        return stream

    torch.cuda.Stream.__new__ = new_stream  # type: ignore[method-assign]
    made = torch.cuda.ExternalStream.__new__

    def new(cls: Any, stream_ptr: int, *args: Any, **kwargs: Any) -> Any:
        streams.external.add(int(stream_ptr))
        return made(cls, stream_ptr, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.cuda.ExternalStream.__new__ = new  # type: ignore[method-assign]


def _cache(recorder: CudaRecorder) -> None:
    """Rule M3: memory that goes back to the driver joins the devices."""
    original = torch.cuda.empty_cache

    @functools.wraps(original)
    def empty_cache() -> None:
        observer = recorder.observer
        held = torch.cuda.is_initialized() and torch.cuda.memory_reserved() > 0
        original()
        if held and observer.recording and recorder.enabled:
            for device in range(torch.cuda.device_count()):
                observer.emit(r.DeviceSync(device, observer.thread(), observer.stack(), "M3"))

    torch.cuda.empty_cache = torch.cuda.memory.empty_cache = empty_cache


def _graphs(recorder: CudaRecorder) -> None:
    """Rules G1 to G4: captures, launches, and the end of graphs."""
    observer, streams = recorder.observer, recorder.streams
    captures: dict[int, GraphCapture] = {}

    def begin(_: Any, graph: Any, *__: Any) -> None:
        origin = streams.current(torch.cuda.current_device())
        streams.capture = captures[id(graph)] = GraphCapture(observer.next_number(), origin)

    def end(_: Any, graph: Any) -> None:
        streams.capture = None

    def replay(_: Any, graph: Any) -> None:
        capture = captures.get(id(graph))
        if capture is None:
            observer.note("blind-spot", "a graph was launched whose capture was not seen")
            return
        observer.operation(
            int(r.OpKind.GRAPH_LAUNCH),
            "CUDAGraph.replay",
            streams.current(torch.cuda.current_device()),
            tuple(capture.accesses),
            graph=capture.number,
        )

    def reset(_: Any, graph: Any) -> None:
        capture = captures.pop(id(graph), None)
        if capture is not None:
            observer.emit(r.GraphDestroy(capture.number, observer.thread()))

    kind = torch.cuda.CUDAGraph
    _wrap(kind, "capture_begin", begin, recorder)
    _wrap(kind, "capture_end", end, recorder)
    _wrap(kind, "replay", replay, recorder)
    _wrap(kind, "reset", reset, recorder)


def _host_reads(recorder: CudaRecorder) -> None:
    """Reads of pinned memory that the dispatcher does not show."""

    def read(_: Any, tensor: torch.Tensor, *__: Any) -> None:
        if tensor.device.type == "cpu" and recorder.owner(tensor) == PINNED:
            accesses = recorder.accesses([(tensor, PINNED, int(r.Mode.READ), "self")])
            recorder.operation(
                int(r.OpKind.HOST), "Tensor.tolist", recorder.observer.thread(), accesses
            )

    _wrap(torch.Tensor, "tolist", read, recorder)

    def exported(array: Any, tensor: torch.Tensor, *_: Any) -> None:
        if tensor.device.type == "cpu" and recorder.owner(tensor) == PINNED:
            for access in recorder.accesses([(tensor, PINNED, int(r.Mode.READ), "self")]):
                recorder.exports.add(array, access)

    _wrap(torch.Tensor, "numpy", exported, recorder)

    def pinned(result: torch.Tensor, source: torch.Tensor, *_: Any) -> None:
        if result is not source and not recorder.blocks.is_pinned(result):
            recorder.blocks.register(result)

    _wrap(torch.Tensor, "pin_memory", pinned, recorder)


def _printing(recorder: CudaRecorder) -> None:
    """Printing reads a tensor with all modes switched off, then waits for its stream (rule H1)."""
    module: Any = torch._tensor_str
    original = module._str

    def read(tensor: torch.Tensor) -> None:
        accesses = recorder.accesses([(tensor, tensor.get_device(), int(r.Mode.READ), "self")])
        if accesses:
            stream = recorder.streams.current(tensor.get_device())
            recorder.operation(int(r.OpKind.KERNEL), "Tensor.__repr__", stream, accesses)

    @functools.wraps(original)
    def text(self: torch.Tensor, *, tensor_contents: str | None = None) -> str:
        watched = recorder.enabled and recorder.observer.recording
        if watched and tensor_contents is None and self.is_cuda:
            recorder._guarded(lambda: read(self))
        return str(original(self, tensor_contents=tensor_contents))

    module._str = text


def _contexts(recorder: CudaRecorder) -> None:
    """Stream contexts: which stream encloses which (kind R11)."""
    streams = recorder.streams
    kind: Any = torch.cuda.StreamContext
    enter, leave = kind.__enter__, kind.__exit__

    def entering(self: Any) -> Any:
        recorder._guarded(
            lambda: streams.contexts.outer.append(streams.current(torch.cuda.current_device()))
        )
        return enter(self)

    def leaving(self: Any, *exc_info: Any) -> Any:
        if streams.contexts.outer:
            streams.contexts.outer.pop()
        return leave(self, *exc_info)

    kind.__enter__, kind.__exit__ = entering, leaving


def _backward(recorder: CudaRecorder) -> None:
    """Rule T2: the engine's threads work for the thread that called backward, which waits."""
    engine = torch.autograd.graph._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        observer = recorder.observer
        recorder.callers.append((observer.thread(), observer.stack(), threading.get_ident()))
        try:
            return engine(*args, **kwargs)
        finally:
            recorder.callers.pop()

    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
