"""Native streams, events and captures of CUDA devices, as the recorder knows them."""

from __future__ import annotations

import threading
from typing import Any

import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._flags import NativeStreams

_LEGACY = 1  # cudaStreamLegacy, another handle of the stream 0
_PER_THREAD = 2  # cudaStreamPerThread

_PRIMARY = -1
"""Stands for the handle of a device's own default stream where the device is divided."""


class GraphCapture:
    """A capture under way or done: its number, its streams' timelines, its nodes' accesses.

    It began on the stream `origin` of `device`. `records` and `waits` are external events, which
    each launch records and waits for: behind and before all of its nodes, as far as we look.
    """

    def __init__(self, number: int, origin: int, device: int = 0) -> None:
        self.number = number
        self.device = device
        self.streams = {origin}
        self.events: set[int] = set()
        self.records: list[int] = []
        self.waits: list[int] = []
        self.accesses: list[r.Access] = []


class Contexts(threading.local):
    """Per thread: its own default streams, and what it is at."""

    def __init__(self) -> None:
        self.external = False
        """Whether the event at work is an external one."""
        self.own: dict[int, int] = {}


class Streams:
    """Timelines of native streams, numbers of events. Handles are only unique on a device.

    Captures may be `under_way` in several threads at the same time, each its own graph.
    """

    def __init__(self, observer: Observer, native: NativeStreams | None = None) -> None:
        self._observer = observer
        self._native = native or NativeStreams()
        self._known: dict[tuple[int, int], int] = {}
        self._device: dict[int, int] = {}
        self._events: dict[int, int] = {}
        self._identities: dict[tuple[int, int], int | None] = {}
        self._divided = False
        self.under_way: list[GraphCapture] = []
        self.contexts = Contexts()

    def divide(self) -> None:
        """There are green contexts from now on, each with a default stream of its own. Which one
        the handle 0 means is asked each time, so that no key of `known` may tell.
        """
        with self._observer.monitor:
            self._divided = True
            for device in [device for device, handle in self._known if handle == 0]:
                self._known[device, _PRIMARY] = self._known.pop((device, 0))

    def _default(self) -> int:
        """What stands for the handle of the calling thread's default stream."""
        if not self._divided:
            return 0
        green = self._native.green(0)
        return -(self._native.identity(0) or green) if green else _PRIMARY

    def define(self, device: int, handle: int, name: str = "") -> int:
        """Timeline of a native stream. `name` is for one that is new here."""
        timeline = self._known.get((device, handle))
        if timeline is not None:
            return timeline
        if handle == _PER_THREAD:
            return self._per_thread(device)
        if handle in (0, _LEGACY):
            handle = self._default()
        with self._observer.monitor:  # threads may meet a stream at the same time
            if (device, handle) not in self._known:
                self._known[device, handle] = self._new(device, handle, name)
                self._device[handle] = device
            return self._known[device, handle]

    def _new(self, device: int, handle: int, name: str) -> int:
        """The timeline of a stream that is new here; a handle below 0 is of a default stream."""
        default, native = handle in (0, _PRIMARY), max(handle, 0)
        if handle < _PRIMARY:
            name = "default of a green context"
        return self._observer.stream(
            device,
            native,
            blocking=default or (native > 0 and self._blocking(native)),
            default=default,
            name="default" if default else name,
        )

    def _blocking(self, handle: int) -> bool:
        """Rule D1: by the flags that the stream was made with. Those of torch's pools, which are
        nearly all there are, are non-blocking.
        """
        return self._native.blocking(handle) is True

    def define_external(self, device: int, handle: int, name: str = "") -> int:
        """Timeline of a stream that others made: the handle may be that of one since destroyed.
        `name` as in `define`.
        """
        identity = self._native.identity(handle)
        with self._observer.monitor:
            known = self._identities.setdefault((device, handle), identity)
            if known != identity:
                self._identities[device, handle] = identity
                self._known.pop((device, handle), None)
            return self.define(device, handle, name)

    def _per_thread(self, device: int) -> int:
        """Rule D2: each thread's own default stream, a blocking one."""
        own = self.contexts.own.get(device)
        if own is None:
            own = self.contexts.own[device] = self._observer.stream(
                device, _PER_THREAD, blocking=True, default=False, name="per-thread default"
            )
        return own

    @property
    def known(self) -> dict[tuple[int, int], int]:
        """Timelines by device and native handle."""
        return self._known

    @property
    def several(self) -> bool:
        """Whether more than one stream is known."""
        return len(self._known) > 1

    def current(self, device: int) -> int:
        """Timeline of the calling thread's current stream of a device."""
        return self.define(device, torch._C._cuda_getCurrentRawStream(device))

    def of_device(self, device: int) -> list[int]:
        """Timelines of a device's streams that are known."""
        return [timeline for (known, _), timeline in list(self._known.items()) if known == device]

    def handles(self, device: int) -> list[int]:
        """Native handles of a device's streams that are known, the per-thread ones left out."""
        return [max(handle, 0) for known, handle in list(self._known) if known == device]

    def of_handle(self, handle: int) -> int:
        """Timeline of a handle that came without its device."""
        return self.define(self.device_of(handle), handle)

    def device_of(self, handle: int) -> int:
        """The device of a stream, as far as it is known: else the current one."""
        device = None if handle in (0, 1, 2) else self._device.get(handle)
        return torch.cuda.current_device() if device is None else device

    # -- captures ---------------------------------------------------------------------------------

    @property
    def captures(self) -> tuple[GraphCapture, ...]:
        """Those under way."""
        return tuple(self.under_way)

    def begin_capture(self, capture: GraphCapture) -> None:
        """A capture starts."""
        with self._observer.monitor:
            self.under_way.append(capture)

    def end_capture(self, capture: GraphCapture) -> None:
        """A capture ends, well or badly."""
        with self._observer.monitor:
            self.under_way[:] = [other for other in self.under_way if other is not capture]

    def capture_of(self, timeline: int) -> GraphCapture | None:
        """The capture that a stream takes part in."""
        for capture in self.captures:
            if timeline in capture.streams:
                return capture
        return None

    # -- events -----------------------------------------------------------------------------------

    def event(self, handle: int) -> int:
        """Number of an event."""
        number = self._events.get(handle)
        if number is None:
            number = self._events[handle] = self._observer.next_number()
        return number

    def knows_event(self, handle: int) -> bool:
        """Whether an event was told of: recorded, waited for or queried."""
        return handle in self._events

    def forget_event(self, handle: int, thread: int) -> None:
        """The event is gone; its handle may come again as another one (E5)."""
        number = self._events.pop(handle, None)
        if number is not None:
            self._observer.emit(r.EventDestroy(number, thread))

    def record(self, handle: int, stream: int, thread: int, stack: int) -> None:
        """An event was recorded."""
        number, capture = self.event(handle), self.capture_of(stream)
        if capture is not None:
            if self.contexts.external:
                capture.records.append(number)
                return
            capture.events.add(number)
        graph = r.NONE if capture is None else capture.number
        self._observer.emit(r.EventRecord(number, stream, thread, stack, graph))

    def wait(self, handle: int, stream: int, thread: int, stack: int) -> None:
        """A stream waits for an event; one of a capture draws the stream into it (G1)."""
        number = self.event(handle)
        for capture in self.captures:
            if number in capture.events:
                capture.streams.add(stream)
        joined = self.capture_of(stream)
        if joined is not None and self.contexts.external:
            joined.waits.append(number)
            return
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
