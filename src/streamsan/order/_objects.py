"""Host objects: what threads have handed over through locks, queues, events and futures (T1, T2).

A program makes them by the million, and nobody says when one is gone. What all live threads have
passed gives them no order any more, so its objects share one clock; so do, if there are too many,
those released first, which gives more order than there is and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from streamsan.order._clocks import Clock, Timeline, join

_FEW = 1024
_ENTRIES = 1 << 20
"""Most entries of all clocks of host objects together."""


def common(threads: Iterable[Timeline]) -> Clock:
    """What all `threads` come after."""
    clocks = [thread.clock for thread in threads]
    if not clocks:
        return {}
    first, *others = clocks
    return {
        timeline: min(epoch, *(clock.get(timeline, 0) for clock in others)) if others else epoch
        for timeline, epoch in first.items()
    }


class Floors(dict[int, int]):
    """The epoch of each timeline that all `threads` have reached, found when first asked for.

    To be emptied of what changes: all of it when one of the threads gains order.
    """

    def __init__(self, threads: Sequence[Timeline]) -> None:
        """Nothing was asked yet."""
        super().__init__()
        self._threads = threads

    def __missing__(self, timeline: int) -> int:
        found = min((t.clock.get(timeline, 0) for t in self._threads), default=0)
        self[timeline] = found
        return found


class HostObjects:
    """A clock for each host object. `merged` counts those whose own clock was given up."""

    def __init__(self) -> None:
        """Nothing was handed over."""
        self.merged = 0
        self.clocks: dict[int, Clock] = {}
        self.shared: Clock = {}
        """The clock of all objects that have none of their own."""
        self._prune_at = _FEW

    def release(self, item: int, clock: Clock, threads: Iterable[Timeline]) -> None:
        """`clock` is handed over through `item`; `threads` are all live ones."""
        own = self.clocks.get(item)
        if own is not None:
            join(own, clock)
            return
        if len(self.clocks) >= self._prune_at:
            self._prune(common(threads))
        self.clocks[item] = clock.copy()

    def handed(self, item: int) -> Clock:
        """What was handed over through `item` so far."""
        return self.clocks.get(item, self.shared)

    def _prune(self, passed: Clock) -> None:
        for item, clock in list(self.clocks.items()):
            if all(passed.get(timeline, 0) >= epoch for timeline, epoch in clock.items()):
                self._share(item)
        entries = sum(map(len, self.clocks.values()))
        if entries > _ENTRIES:
            first = list(islice(self.clocks, len(self.clocks) // 2))
            self.merged += len(first)
            for item in first:
                self._share(item)
        self._prune_at = max(_FEW, 2 * len(self.clocks))

    def _share(self, item: int) -> None:
        join(self.shared, self.clocks.pop(item))
