"""The memory of a run, or of one capture: a shadow for each address space, and what is filed there.

Each access of a program passes through `Memory.touch`; nothing else in the checker is done as
often.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamsan.detect._losses import Losses
from streamsan.detect._segments import Segment, Use
from streamsan.detect._shadow import Shadow
from streamsan.detect._views import Key
from streamsan.model.extent import Extent
from streamsan.model.records import Access, Mode, Operation
from streamsan.order import Clock, Order

_WRITE = int(Mode.WRITE)

Hit = tuple[Access, int, Use]
"""An access, which use in a row it has met, from 0, and the earlier use that races with it."""


class Memory:
    """The shadow memories of all address spaces; `order` orders all that is filed in them, and
    `losses` counts what was cut.
    """

    def __init__(self, order: Order, losses: Losses) -> None:
        """Memory that nothing has used."""
        self.shadows: dict[int, Shadow] = {}
        self._order = order
        self._losses = losses
        self._lines: dict[str, int] = {}
        """Numbers below zero for the operations that have no stack, by name."""

    @property
    def pieces(self) -> int:
        """How many pieces of memory are kept; what is given up depends on them."""
        return sum(shadow.pieces for shadow in self.shadows.values())

    def shadow(self, space: int) -> Shadow:
        """The shadow memory of an address space."""
        found = self.shadows.get(space)
        if found is None:
            found = self.shadows[space] = Shadow(self._order.floors, self._losses)
        return found

    def touch(
        self, op: Operation, accesses: Sequence[Access], epoch: int, clock: Clock
    ) -> Sequence[Hit]:
        """File `accesses` of `op`, whose clock is `clock`; the earlier uses that race with them.

        A use comes once per segment that it shares with an access.
        """
        found: Sequence[Hit] = ()
        timeline, thread = op.timeline, op.thread
        line = op.stack if op.stack >= 0 else self._lines.setdefault(op.name, ~len(self._lines))
        line *= 16
        space: int | None = None
        extent: Extent | None
        for access in accesses:
            if access.space != space:
                space = access.space
                shadow = self.shadows.get(space) or self.shadow(space)
                at = shadow.segments.at
            segment = at.get(access.address)
            if segment is not None and segment.size == access.run and not access.sizes:
                segments: Sequence[Segment] = (segment,)
                extent = None
            else:
                segments, extent = shadow.place(access)
            mode, sure = access.mode, access.confidence
            writes = mode >= _WRITE
            key: Key = line + (mode + 4 * sure)  # sums are quicker than bits
            if extent is not None:
                key = (key, extent)
            for segment in segments:
                if segment.alone == timeline:  # by far the most common
                    track = segment.tracks[0]
                else:
                    uses = shadow.look(segment, timeline, writes, clock, extent)
                    if uses:
                        met = sum(hit[0] is access for hit in found)
                        found = [*found, *((access, met + n, use) for n, use in enumerate(uses))]
                    track = segment.track(timeline, epoch)
                track.newest = epoch
                if writes:
                    track.newest_write = epoch
                if extent is not None:
                    track.index(key, extent)
                block = segment.block
                track.uses[key] = (epoch, op, access, block, extent)
                if block is not None and thread not in block.threads:
                    block.threads |= {thread}
                if len(track.uses) > track.room:
                    shadow.make_room(track)
        return found
