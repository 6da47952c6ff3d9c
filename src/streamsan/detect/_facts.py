"""The facts of a conflict, gathered when it is found: both sides, and the edges nearest to it."""

from __future__ import annotations

from dataclasses import dataclass

from streamsan.detect._blocks import Block
from streamsan.model.records import NONE, Access, Confidence, Mode, Operation
from streamsan.order import Edge, Order

LIFETIME = NONE
"""`Operation.seq` of the points at which stream-ordered memory is allocated or freed (rule M4)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One side: an access of an operation to a block (None: memory of unknown owner)."""

    op: Operation
    access: Access
    block: Block | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two unordered accesses, and what might have been meant to order them.

    `direct` is the last edge from the first's stream to the second's that no later
    synchronisation of the host outdates; `nearest`, the last edge to the second's stream or to the
    thread that enqueued it. `replaced` is a record that covered the first access and was lost to a
    later one; `renewed`, the stack of a record that covers the first access and came after the wait
    of `direct` had taken an older version; `never`, the (event, stack) of a wait for an event never
    recorded; `beside`, the (source, stack) of a wait after the first access that was for another
    stream and did not help.
    """

    first: Part
    second: Part
    captured: bool
    moved: bool
    direct: Edge | None
    nearest: Edge | None
    replaced: Edge | None
    renewed: int | None
    never: tuple[int, int] | None
    beside: tuple[int, int] | None

    @property
    def sides(self) -> tuple[Part, Part]:
        """Both sides, in order of submission."""
        return self.first, self.second

    @property
    def confidence(self) -> Confidence:
        """How sure the less sure of the two accesses is."""
        return Confidence(min(part.access.confidence for part in self.sides))

    @property
    def hazard(self) -> str:
        """What the order decides; an update of what was written is a write of the same slot."""
        first, second = self.first.access.mode, self.second.access.mode
        if not first & Mode.WRITE:
            return "write-after-read"
        return "write-after-write" if second & Mode.WRITE else "read-after-write"


def gather(order: Order, epoch: int, first: Part, second: Part, captured: bool) -> Conflict:
    """The facts of a conflict that was found just now; `epoch` is that of the first side."""
    source, target = first.op.timeline, second.op.timeline
    latest = order.edges.latest
    direct = latest.get((source, target))
    host = latest.get((source, second.op.thread))
    nearest = direct
    if host is not None and (direct is None or host.serial > direct.serial):
        nearest, direct = host, None
    replaced = order.edges.replaced.get((source, target))
    if replaced is not None and replaced.epoch < epoch:
        replaced = None
    moved = first.block is not None and first.block is not second.block
    return Conflict(
        first,
        second,
        captured,
        moved,
        direct,
        nearest,
        replaced,
        _renewed(order, source, epoch, direct),
        _never(order, source, target, direct),
        _beside(order, first, second, host),
    )


def _renewed(order: Order, source: int, epoch: int, direct: Edge | None) -> int | None:
    """The record that a wait came too early for: of the same event, and it covers the access."""
    version = order.version_of(direct.event) if direct is not None else None
    if direct is None or version is None or version.number <= direct.number:
        return None
    return version.stack if version.stream == source and version.epoch >= epoch else None


def _never(order: Order, source: int, target: int, direct: Edge | None) -> tuple[int, int] | None:
    """A wait of `target` for an event never recorded, if it may have been meant for `source`."""
    wait = order.edges.never.get(target)
    if wait is None:
        return None
    event, stack, serial = wait
    version = order.version_of(event)
    meant = version is None or version.stream == source
    return (event, stack) if meant and (direct is None or direct.serial < serial) else None


def _beside(order: Order, first: Part, second: Part, host: Edge | None) -> tuple[int, int] | None:
    """A wait of the second's stream after the first access, for a stream that does not matter.

    It counts if it brought no order at all, or if it is one of several branches being joined: the
    first's stream had forked from the second's since the host last waited for it.
    """
    source, target = first.op.timeline, second.op.timeline
    wait = order.edges.other.get(target)
    if wait is None or wait[0] == source or wait[2] < first.op.seq:
        return None
    fork = order.edges.latest.get((target, source))
    forked = fork is not None and (host is None or fork.serial > host.serial)
    return (wait[0], wait[1]) if forked or not wait[3] else None
