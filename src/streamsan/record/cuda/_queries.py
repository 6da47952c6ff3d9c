"""Queries of events and streams, and the making of streams: what torch's GPU trace leaves out."""

from __future__ import annotations

import _thread
import functools
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record.cuda._methods import listen
from streamsan.record.cuda._streams import raw_handle

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


def install_queries(recorder: CudaRecorder) -> None:
    """Listen to streams and events of both kinds: ``torch.cuda``'s and the generic ones."""
    queries = _Queries(recorder)
    for event in (torch.cuda.Event, torch.Event):
        listen(recorder, event, "query", queries.event)
        listen(recorder, event, "elapsed_time", queries.elapsed)
    for stream in (torch.cuda.Stream, torch.Stream):
        listen(recorder, stream, "query", queries.stream)
    _births(recorder)
    _external(recorder)


class _Queries:
    """Rule E4: a query that answers "done" counts as a wait."""

    def __init__(self, recorder: CudaRecorder) -> None:
        self._observer, self._streams = recorder.observer, recorder.streams

    def event(self, done: bool, event: Any) -> None:
        """An event was queried."""
        handle = _event_handle(event)
        if done and handle:
            observer = self._observer
            number = self._streams.event(handle)
            observer.emit(r.EventSync(number, observer.thread(), observer.stack(), True))

    def elapsed(self, _: float, event: Any, end_event: Any) -> None:
        """The time between two events was to be had: both are done."""
        self.event(True, event)
        self.event(True, end_event)

    def stream(self, done: bool, stream: Any) -> None:
        """A stream was queried."""
        if done and stream.device.type == "cuda":
            observer = self._observer
            timeline = self._streams.define(stream.device.index, raw_handle(stream))
            observer.emit(r.StreamSync(timeline, observer.thread(), observer.stack(), True))


def _event_handle(event: Any) -> int:
    """The native handle of an event; 0 where it was not recorded yet, or is of another device."""
    if isinstance(event, torch.cuda.Event):
        return int(event.cuda_event)
    if event.device is None or event.device.type != "cuda":
        return 0
    return int(event.event_id or 0)


def _births(recorder: CudaRecorder) -> None:
    """Streams are named by where they were made."""
    observer, streams = recorder.observer, recorder.streams
    born = torch.cuda.Stream.__new__
    # torch makes a device's pool under a C++ once-flag, holding the interpreter lock, and its trace
    # runs Python in there: a second thread that wants a stream meanwhile would wait for the flag
    # with the interpreter lock in its hand, for ever.
    one_at_a_time = _thread.allocate_lock()

    def new_stream(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with one_at_a_time:
            stream = born(cls, *args, **kwargs)  # type: ignore[no-untyped-call]
        if recorder.enabled and observer.recording:
            recorder._guarded(lambda: defined(stream))
        return stream

    def defined(stream: Any) -> None:
        with suppress(RuntimeError):  # made of a handle that torch will refuse
            handle = stream.cuda_stream
            external = handle != 0 and handle == stream.stream_id  # the id that torch gives those
            define = streams.define_external if external else streams.define
            define(stream.device_index, handle)

    torch.cuda.Stream.__new__ = new_stream  # type: ignore[method-assign]


def _external(recorder: CudaRecorder) -> None:
    """External events: a capture makes nodes of them, which do at each launch what was captured."""
    external: weakref.WeakSet[Any] = weakref.WeakSet()
    here = recorder.streams.contexts

    def born(event: Any, _: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("external", len(args) > 3 and args[3]):
            if not external:  # the others need not pay for them
                announce("record")
                announce("wait")
            external.add(event)

    def announce(name: str) -> None:
        original = getattr(torch.cuda.Event, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            here.external = self in external
            try:
                return original(self, *args, **kwargs)
            finally:
                here.external = False

        setattr(torch.cuda.Event, name, method)

    listen(recorder, torch.cuda.Event, "__new__", born)
