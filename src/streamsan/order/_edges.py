"""Direct edges between timelines, kept to explain a missing order; they decide no verdict."""

from __future__ import annotations

from typing import NamedTuple

from streamsan.model.records import NONE
from streamsan.order._clocks import Version


class Edge(NamedTuple):
    """The latest direct order from one timeline to another.

    It covers the source up to `epoch`. It was made by a record of `event` (NONE: a synchronisation
    of the stream or its device) at `record_stack`, version `number`, and taken at `wait_stack`,
    after the operation number `after`; of two edges the later one has the larger `serial`.
    """

    epoch: int
    event: int
    number: int
    record_stack: int
    wait_stack: int
    after: int
    serial: int


class Edges:
    """Edges and failed attempts at them, by timeline.

    `latest` maps (source, target) to the last edge. `replaced` maps (source, target) to a version
    of an event that the target waited for, recorded on the source, after a record elsewhere had
    replaced it; the edge's `wait_stack` is the wait. `never` maps a target to its last wait for an
    event never recorded: (event, stack, serial). `other` maps a target to its last wait of any
    kind: (source, stack, after, whether it gave any new order).
    """

    __slots__ = ("_serial", "latest", "never", "other", "replaced")

    def __init__(self) -> None:
        """No edge yet."""
        self._serial = 0
        self.latest: dict[tuple[int, int], Edge] = {}
        self.replaced: dict[tuple[int, int], Edge] = {}
        self.never: dict[int, tuple[int, int, int]] = {}
        self.other: dict[int, tuple[int, int, int, bool]] = {}

    def waited(
        self,
        target: int,
        event: int,
        version: Version,
        older: dict[int, Version],
        stack: int,
        after: int,
        useful: bool,
    ) -> None:
        """`target` waited for `version`; `older` are the event's replaced versions by stream."""
        source = version.stream
        self._serial += 1
        self.latest[source, target] = Edge(
            version.epoch, event, version.number, version.stack, stack, after, self._serial
        )
        self.other[target] = (source, stack, after, useful)
        for stream, lost in older.items():
            if stream != source:
                self.replaced[stream, target] = Edge(
                    lost.epoch, event, lost.number, lost.stack, stack, after, self._serial
                )

    def synchronised(self, source: int, epoch: int, target: int, stack: int, after: int) -> None:
        """Host thread `target` waited for all work of `source`."""
        self._serial += 1
        self.latest[source, target] = Edge(epoch, NONE, 0, NONE, stack, after, self._serial)

    def waited_in_vain(self, target: int, event: int, stack: int) -> None:
        """`target` waited for `event`, which was never recorded."""
        self._serial += 1
        self.never[target] = (event, stack, self._serial)

    def erase(self, gone: set[int]) -> None:
        """Forget the edges of timelines that are no more."""
        self.latest = _without(self.latest, gone)
        self.replaced = _without(self.replaced, gone)


def _without(edges: dict[tuple[int, int], Edge], gone: set[int]) -> dict[tuple[int, int], Edge]:
    return {pair: edge for pair, edge in edges.items() if gone.isdisjoint(pair)}
