"""What an arena does by itself at an allocation and a free, as records of a run (rule M6)."""

from __future__ import annotations

from tests.unit.builder import Trace

FIRST_EVENT = 100


class Arena:
    """An arena, or the caching allocator, which does nothing by itself.

    `events` holds, for each place that was given back under the policy `event`, the events of the
    streams that used it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: dict[int, list[int]] = {}
        self._policy = name.partition(":")[2]
        self._users: dict[int, set[int]] = {}
        self._next = FIRST_EVENT

    def take(self, trace: Trace, former: list[int], place: int, stream: int, thread: int) -> None:
        """Hand out a place that overlaps the `former` ones: `stream` waits for their events."""
        self._users[place] = {stream}
        for other in former:
            for event in self.events[other]:
                trace.wait(event, stream, thread=thread)

    def use(self, place: int, stream: int) -> None:
        """A work of `stream` uses a place."""
        if place in self._users:
            self._users[place].add(stream)

    def give_back(self, trace: Trace, place: int, thread: int) -> None:
        """Take a place back: wait for the device, or record events on all who used it."""
        if self._policy == "host-sync":
            trace.device_sync(0, thread, cause="M6")
        elif self._policy == "event":
            self.events[place] = []
            for stream in sorted(self._users[place]):
                trace.record(self._next, stream, thread=thread)
                self.events[place].append(self._next)
                self._next += 1
