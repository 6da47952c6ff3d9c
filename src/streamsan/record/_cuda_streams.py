"""Native streams, events and captures of CUDA devices, as the recorder knows them."""

from __future__ import annotations

import threading
from typing import Any

import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer

_PER_THREAD = 2  # cudaStreamPerThread


class GraphCapture:
    """A capture under way or done: its number, its streams' timelines, its nodes' accesses."""

    def __init__(self, number: int, origin: int) -> None:
        self.number = number
        self.streams = {origin}
        self.events: set[int] = set()
        self.accesses: list[r.Access] = []


class Contexts(threading.local):
    """Per thread: streams whose contexts enclose the current one, and its own default streams."""

    def __init__(self) -> None:
        self.outer: list[int] = []
        self.own: dict[int, int] = {}


class Streams:
    """Timelines of native streams, numbers of events. Handles are only unique on a device."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._known: dict[tuple[int, int], int] = {}
        self._device: dict[int, int] = {}
        self._events: dict[int, int] = {}
        self.external: set[int] = set()
        self.capture: GraphCapture | None = None
        self.contexts = Contexts()

    def define(self, device: int, handle: int) -> int:
        """Timeline of a native stream. Pool streams are non-blocking, external ones taken as
        blocking, which is what ``cudaStreamCreate`` makes (rule D1).
        """
        if handle == _PER_THREAD:
            return self._per_thread(device)
        timeline = self._known.get((device, handle))
        if timeline is not None:
            return timeline
        with self._observer.monitor:  # threads may meet a stream at the same time
            if (device, handle) in self._known:
                return self._known[device, handle]
            default = handle in (0, 1)
            blocking = default or handle in self.external
            timeline = self._observer.stream(
                device,
                handle,
                blocking=blocking,
                default=default,
                name="default" if default else "",
            )
            self._device[handle] = device
            self._known[device, handle] = timeline
        return timeline

    def _per_thread(self, device: int) -> int:
        """Rule D2: each thread's own default stream, a blocking one."""
        own = self.contexts.own.get(device)
        if own is None:
            own = self.contexts.own[device] = self._observer.stream(
                device, _PER_THREAD, blocking=True, default=False, name="per-thread default"
            )
        return own

    def current(self, device: int) -> int:
        """Timeline of the calling thread's current stream of a device."""
        return self.define(device, torch._C._cuda_getCurrentRawStream(device))

    def handles(self, device: int) -> list[int]:
        """Native handles of a device's streams that are known, the per-thread ones left out."""
        return [handle for known, handle in list(self._known) if known == device]

    def of_handle(self, handle: int) -> int:
        """Timeline of a handle that came without its device."""
        device = torch.cuda.current_device() if handle in (0, 1, 2) else self._device.get(handle)
        return self.define(torch.cuda.current_device() if device is None else device, handle)

    def context(self, timeline: int) -> int:
        """The stream of the enclosing context, where that is another one."""
        outer = self.contexts.outer
        return outer[-1] if len(outer) > 1 and outer[-1] != timeline else r.NONE

    def capture_of(self, timeline: int) -> GraphCapture | None:
        """The capture that a stream takes part in."""
        capture = self.capture
        return capture if capture is not None and timeline in capture.streams else None

    # -- events -----------------------------------------------------------------------------------

    def event(self, handle: int) -> int:
        """Number of an event."""
        number = self._events.get(handle)
        if number is None:
            number = self._events[handle] = self._observer.next_number()
        return number

    def forget_event(self, handle: int, thread: int) -> None:
        """The event is gone; its handle may come again as another one (E5)."""
        number = self._events.pop(handle, None)
        if number is not None:
            self._observer.emit(r.EventDestroy(number, thread))

    def record(self, handle: int, stream: int, thread: int, stack: int) -> None:
        """An event was recorded."""
        number, capture = self.event(handle), self.capture_of(stream)
        if capture is not None:
            capture.events.add(number)
        graph = r.NONE if capture is None else capture.number
        self._observer.emit(r.EventRecord(number, stream, thread, stack, graph))

    def wait(self, handle: int, stream: int, thread: int, stack: int) -> None:
        """A stream waits for an event; one of a capture draws the stream into it (G1)."""
        number, capture = self.event(handle), self.capture
        if capture is not None and number in capture.events:
            capture.streams.add(stream)
        joined = self.capture_of(stream)
        graph = r.NONE if joined is None else joined.number
        self._observer.emit(r.EventWait(number, stream, thread, stack, graph))

    def order(self, first: int, then: int) -> None:
        """Rule C8: later work of `then` comes after all work of `first`."""
        number = self._observer.next_number()
        thread, stack = self._observer.thread(), self._observer.stack()
        self._observer.emit(r.EventRecord(number, first, thread, stack))
        self._observer.emit(r.EventWait(number, then, thread, stack))


def raw_handle(stream: Any) -> int:
    """The native handle of a torch stream, generic or of torch.cuda."""
    handle = getattr(stream, "cuda_stream", None)
    if handle is None:
        handle = torch.cuda.Stream(
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        ).cuda_stream
    return int(handle)
