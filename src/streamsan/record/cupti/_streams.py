"""Streams as the driver's calls name them: those that nobody has told of are another library's."""

from __future__ import annotations

from streamsan.record.cuda._streams import Streams


class SeenStreams:
    """Timelines of native streams; `foreign` are those that were first seen at the driver."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.foreign: set[int] = set()

    def timeline(self, device: int, handle: int) -> int:
        """Timeline of a stream. A library's has no variable of the program's, so it gets a name."""
        before = self._streams.known.get((device, handle))
        name = f"library stream {len(self.foreign) + 1}"
        found = self._streams.define_external(device, handle, name)
        if found != before and handle not in (0, 1, 2):  # those that every program has
            self.foreign.add(found)
        return found
