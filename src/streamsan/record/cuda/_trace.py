"""Callbacks of torch's GPU trace: its C++ code calls them, in whichever thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._utils import CallbackRegistry
from torch.cuda import _gpu_trace as trace

from streamsan.model import records as r
from streamsan.record import _core
from streamsan.record._pending import keep_pending_errors
from streamsan.record.cuda._cache import install_cache
from streamsan.record.cuda._untraced import install_untraced

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def install_trace(recorder: CudaRecorder) -> None:
    """Listen for the rest of the process; what happens inside of an operator is told after it."""
    observer, streams = recorder.observer, recorder.streams

    held = functools.partial(_held, recorder)

    def record(event: int, stream: int, thread: int, stack: int) -> None:
        streams.record(event, streams.of_handle(stream), thread, stack)

    def wait(event: int, stream: int, thread: int, stack: int) -> None:
        streams.wait(event, streams.of_handle(stream), thread, stack)

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
    recorder.keeps_errors = keep_pending_errors()
    torch._C._activate_gpu_trace()
    if recorder.arena is None:  # an arena tells of its memory by itself
        _trace_memory(recorder)


def _trace_memory(recorder: CudaRecorder) -> None:
    """Listen to what torch's allocator hands out and takes back, and follow what it tells not.

    Most operators cause two of these callbacks, so there is little between torch and them.
    """
    install_cache(recorder)
    of = trace.MemoryAllocationCallbacks, trace.MemoryDeallocationCallbacks
    dispatch = recorder.dispatch
    if dispatch is None or not dispatch.trace_memory(of[0].callback_list, of[1].callback_list):
        for registry, callback in zip(of, memory_callbacks(recorder)):
            _call_directly(registry, callback)
    install_untraced(recorder)


def memory_callbacks(
    recorder: CudaRecorder,
) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """What is called with the address of a block handed out, and with that of one taken back."""
    compiled = recorder.recording
    if compiled is not None and not recorder.cache.uncached:
        return compiled.allocated, compiled.freed
    observer, streams, blocks = recorder.observer, recorder.streams, recorder.blocks
    cache = recorder.cache

    def allocated(address: int) -> None:
        if not observer.recording or not recorder.enabled:
            return
        try:
            device = torch._C._cuda_getDevice()
            owner = streams.current(device)
            cache.handed_out(address, device, owner)
            blocks.allocated(address, owner, *recorder.where())
        except Exception as error:
            observer.internal_error(error)

    def freed(address: int) -> None:
        try:
            born = blocks.take(address)  # now: an operator may be handed the address again
            if cache.uncached:
                _held(recorder, lambda *_: cache.joined(torch._C._cuda_getDevice()))()
            if born is None or not observer.recording or not recorder.enabled:
                return
            inside, (thread, stack) = recorder.local.inside, recorder.where()
            if inside is None:
                blocks.give_up(born, thread, stack)
            else:
                inside.append(functools.partial(blocks.give_up, born, thread, stack))
        except Exception as error:
            observer.internal_error(error)

    return allocated, freed


def _call_directly(registry: CallbackRegistry[[int]], callback: Callable[[int], None]) -> None:
    """Have a registry call one that raises nothing, before its list, which is empty mostly."""
    fire = registry.fire_callbacks
    then = _core.Then(callback, registry.callback_list, fire)
    registry.fire_callbacks = then  # type: ignore[method-assign]


def _held(recorder: CudaRecorder, function: Callable[..., None]) -> Callable[..., None]:
    """A callback that calls ``function(*args, thread, stack)``, after the operator at work."""
    observer = recorder.observer

    def callback(*args: Any) -> None:
        if not observer.recording or not recorder.enabled:
            return
        try:
            thread, stack = recorder.where()
            inside = recorder.local.inside
            if inside is None:
                function(*args, thread, stack)
            else:
                inside.append(functools.partial(function, *args, thread, stack))
        except Exception as error:
            observer.internal_error(error)

    return callback
