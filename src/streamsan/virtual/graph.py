"""Graphs: work captured instead of run, and launched later as one operation (rules G1 to G4)."""

from __future__ import annotations

from streamsan.model.records import Access
from streamsan.virtual.streams import Event, Stream, Work


class CaptureError(RuntimeError):
    """What CUDA reports when something happens that a capture cannot hold."""

    def __init__(self, text: str) -> None:
        super().__init__(f"CUDA error: {text}")


class Capture:
    """One capture: the streams drawn into it, and its nodes in the order they were enqueued.

    `pool` is the private pool its memory comes from; `accesses` are those of all nodes.
    """

    def __init__(self, number: int, pool: int, origin: Stream) -> None:
        self.number = number
        self.pool = pool
        self.origin = origin
        self.streams: list[Stream] = []
        self.nodes: list[Work] = []
        self.accesses: list[Access] = []
        self.events: dict[int, Event] = {}
        self.valid = True
        self.joined: set[Stream] = {origin}
        self._recorded: dict[int, set[Stream]] = {}
        self._seen: dict[Stream, set[Stream]] = {}
        self.join(origin)

    def join(self, stream: Stream) -> None:
        """Draw a stream into the capture."""
        if stream.capture is None:
            stream.capture = self
            self.streams.append(stream)

    def record(self, event: Event, stream: Stream) -> None:
        """`event` now stands for the captured work of `stream`."""
        self.events[event.number] = event
        self._recorded[event.number] = {stream, *(self._reached(stream))}

    def wait(self, stream: Stream, event: Event) -> None:
        """A wait for a captured event draws its stream in (rule G1)."""
        self.join(stream)
        covered = self._recorded[event.number]
        self._seen.setdefault(stream, set()).update(covered)
        if stream is self.origin:
            self.joined |= covered

    def _reached(self, stream: Stream) -> set[Stream]:
        return self._seen.get(stream, set())

    def add(self, stream: Stream, work: Work | None) -> None:
        """Append a node; what merely orders needs none, since nodes run as they were enqueued."""
        if work is not None:
            self.nodes.append(work)
            if stream is not self.origin:
                self.joined.discard(stream)
                for seen in self._seen.values():
                    seen.discard(stream)

    def unjoined(self) -> bool:
        """Whether a stream was drawn in whose last work the origin never came to wait for."""
        return any(stream not in self.joined for stream in self.streams[1:])

    def invalidate(self) -> None:
        """Something happened that the capture cannot hold: its end will fail."""
        self.valid = False

    def end(self) -> None:
        """Release the streams. Raises CaptureError where the capture has become invalid."""
        for stream in self.streams:
            stream.capture = None
        if not self.valid:
            raise CaptureError("operation failed due to a previous error during capture")

    def launch(self) -> None:
        """Run all nodes."""
        for node in self.nodes:
            node()
