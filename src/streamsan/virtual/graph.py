"""Graphs: work captured instead of run, and launched later as one operation (rules G1 to G4).

What a capture forbids, and the words it is refused with, are those of CUDA 13 on a real device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamsan.model.records import Access
from streamsan.virtual.streams import Event, Stream, Work

Clock = dict[Stream, int]
"""How many nodes of each stream come before a point of a capture."""

MODES = ("global", "thread_local", "relaxed")
"""Whom a capture forbids unsafe calls: every thread, the one that began it, or nobody."""

UNSUPPORTED = "operation not permitted when stream is capturing"
INVALIDATED = "operation failed due to a previous error during capture"
UNJOINED = "capturing stream has unjoined work"
ISOLATION = "dependency created on uncaptured work in another stream"
MERGE = "operation would result in a merge of separate capture sequences"
IMPLICIT = "operation would make the legacy stream depend on a capturing blocking stream"
CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream"


class CaptureError(RuntimeError):
    """What CUDA reports when something happens that a capture cannot hold."""


def _capture_error(text: str) -> RuntimeError:
    return CaptureError(f"CUDA error: {text}")


class Captures:
    """The captures under way. `error` makes the exceptions; a framework may have its own."""

    def __init__(self) -> None:
        self.active: list[Capture] = []
        self.error: Callable[[str], RuntimeError] = _capture_error

    def begin(self, capture: Capture) -> None:
        """A capture starts."""
        self.active.append(capture)

    def end(self, capture: Capture) -> None:
        """It ends. Raises where it has become invalid, or a stream of it was never joined."""
        self.active.remove(capture)
        unjoined = capture.unjoined()
        capture.end()
        if not capture.valid:
            raise self.error(INVALIDATED)
        if unjoined:
            raise self.error(UNJOINED)

    def refuse_unsafe(self) -> None:
        """A call that a capture may forbid: waiting, asking, taking memory from the driver."""
        thread = threading.get_ident()
        self._refuse([capture for capture in self.active if capture.forbids(thread)], UNSUPPORTED)

    def refuse_stream(self, stream: Stream) -> None:
        """The same, about one stream: it is refused in any mode where that is captured."""
        if isinstance(stream.capture, Capture):
            self._refuse([stream.capture], UNSUPPORTED)
        self.refuse_unsafe()

    def refuse_device(self, device: int) -> None:
        """The same, about a device: it is refused in any mode while a stream of it is captured."""
        self._refuse(
            [
                capture
                for capture in self.active
                if any(stream.device == device for stream in capture.streams)
            ],
            UNSUPPORTED,
        )
        self.refuse_unsafe()

    def refuse_event(self, event: Event) -> None:
        """The same, about an event: it is refused in any mode where its record was captured."""
        if isinstance(event.capture, Capture):
            self._refuse([event.capture], CAPTURED_EVENT)
        if event.recorded:
            self.refuse_unsafe()

    def refuse_legacy(self, device: int) -> None:
        """Work for the legacy stream while a blocking stream is captured (rule D1)."""
        self._refuse(
            [
                capture
                for capture in self.active
                if any(stream.blocking and stream.device == device for stream in capture.streams)
            ],
            IMPLICIT,
        )

    def join(self, stream: Stream, event: Event) -> Capture | None:
        """A wait for a captured event draws its stream into the capture (rule G1).

        Raises where a captured stream would wait for what its capture does not hold.
        """
        own = stream.capture if isinstance(stream.capture, Capture) else None
        other = event.capture
        if isinstance(other, Capture) and other in self.active and own in (None, other):
            other.wait(stream, event)
            return other
        if own is not None and event.recorded:
            merged = [other] if isinstance(other, Capture) else []
            self._refuse([own, *merged], MERGE if merged else ISOLATION)
        return own

    def _refuse(self, captures: list[Capture], text: str) -> None:
        for capture in captures:
            capture.invalidate()
        if captures:
            raise self.error(text)


class Capture:
    """One capture: the streams drawn into it, and its nodes in the order they were enqueued.

    `pool` is the private pool its memory comes from; `accesses` are those of all nodes; `seeds`
    are those of the launch that runs, by the numbers that `seed` gave out. `records` and `waits`
    are external events, which each launch records and waits for: behind and before all its nodes.
    """

    def __init__(self, number: int, pool: int, origin: Stream, mode: str = "global") -> None:
        self.number = number
        self.pool = pool
        self.origin = origin
        self.mode = mode
        self.thread = threading.get_ident()
        self.streams: list[Stream] = []
        self.nodes: list[Work] = []
        self.accesses: list[Access] = []
        self.records: list[Event] = []
        self.waits: list[Event] = []
        self.seeds: list[int] = []
        self._sources: list[Callable[[], int]] = []
        self.valid = True
        self._clocks: dict[Stream, Clock] = {}
        self._recorded: dict[int, Clock] = {}
        self._join(origin)

    def forbids(self, thread: int) -> bool:
        """Whether unsafe calls of a thread are refused while this capture lasts."""
        return self.mode == "global" or (self.mode == "thread_local" and self.thread == thread)

    def _join(self, stream: Stream) -> None:
        if stream.capture is None:
            stream.capture = self
            self.streams.append(stream)
            self._clocks[stream] = {}

    def record(self, event: Event, stream: Stream) -> None:
        """`event` now stands for the captured work of `stream`."""
        self._recorded[event.number] = dict(self._clocks[stream])

    def wait(self, stream: Stream, event: Event) -> None:
        """A wait for a captured event draws its stream in (rule G1)."""
        self._join(stream)
        clock = self._clocks[stream]
        for other, count in self._recorded[event.number].items():
            clock[other] = max(count, clock.get(other, 0))

    def add(self, stream: Stream, work: Work | None) -> None:
        """Append a node; what merely orders needs none, since nodes run as they were enqueued."""
        if work is not None:
            self.nodes.append(work)
            clock = self._clocks[stream]
            clock[stream] = clock.get(stream, 0) + 1

    def unjoined(self) -> bool:
        """Whether a stream was drawn in whose last work the origin never came to wait for."""
        seen = self._clocks[self.origin]
        return any(
            seen.get(stream, 0) < self._clocks[stream].get(stream, 0) for stream in self.streams[1:]
        )

    def invalidate(self) -> None:
        """Something happened that the capture cannot hold: its end will fail."""
        self.valid = False

    def end(self) -> None:
        """Release the streams."""
        for stream in self.streams:
            stream.capture = None

    def seed(self, source: Callable[[], int]) -> int:
        """A node draws random numbers: each launch takes a fresh seed from `source`."""
        self._sources.append(source)
        return len(self._sources) - 1

    def draw(self) -> list[int]:
        """The seeds of a launch, taken when it is enqueued."""
        return [source() for source in self._sources]

    def launch(self, seeds: list[int]) -> None:
        """Run all nodes."""
        self.seeds = seeds
        for node in self.nodes:
            node()
