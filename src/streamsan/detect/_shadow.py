"""Shadow memory: which operations touched which bytes, and which of them conflict with a new one.

One `Shadow` covers one address space. Its segments are disjoint, and an access that touches a whole
segment is filed there without its extent; an access with many gaps is filed in all segments of its
span, and its bytes are compared exactly. History outlives a block, so that reuse of its bytes is
judged against its old owner.

A use is forgotten only if a later use of the same timeline, line of the program, mode and bytes
stands for it; if all that may still come is ordered after it (`floor`, or the guard of a free); or
if the segment is full, which `lost` counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import Any

from streamsan.detect._blocks import Block
from streamsan.model.extent import Extent, count, overlaps, runs, span
from streamsan.model.records import Access, Mode, Operation
from streamsan.order import Clock

Use = tuple[int, Operation, Access, "Block | None", "Extent | None"]
"""Epoch, operation, access, block of the bytes at that time, and the extent if it has gaps."""

_WRITE = int(Mode.WRITE)
_FEW_RUNS = 16
_ROOM = 16
_SWEEP = 4096


class Track:
    """The uses that one timeline made of one segment.

    `newest`, `newest_write` and `oldest` bound their epochs, so that one comparison tells that all
    are ordered, or none; `room` is the number of uses at which it is worth to look for old ones.
    """

    __slots__ = ("newest", "newest_write", "oldest", "room", "uses")

    def __init__(self, epoch: int) -> None:
        """A track whose first use has that epoch."""
        self.newest = self.oldest = epoch
        self.newest_write = 0
        self.room = _ROOM
        self.uses: dict[tuple[Any, ...], Use] = {}

    def copy(self) -> Track:
        """The same track, for the other half of a segment that is split."""
        twin = Track(self.oldest)
        twin.newest, twin.newest_write, twin.room = self.newest, self.newest_write, self.room
        twin.uses = self.uses.copy()
        return twin

    def drop(self, epoch: int) -> None:
        """Forget all uses up to `epoch`."""
        self.uses = {key: use for key, use in self.uses.items() if use[0] > epoch}
        self.oldest = epoch + 1


class Segment:
    """Bytes ``start`` to ``end`` (exclusive), their latest block, and their uses by timeline."""

    __slots__ = ("block", "end", "start", "tracks")

    def __init__(self, start: int, end: int, block: Block | None) -> None:
        """Bytes that nothing has used."""
        self.start, self.end, self.block = start, end, block
        self.tracks: dict[int, Track] = {}


class Shadow:
    """The shadow memory of one address space.

    `floor` gives the epoch of a timeline that everything to come is ordered after; `limit` is the
    most uses kept for one segment and timeline; `lost` counts the uses that were cut by it.
    """

    def __init__(self, floor: Callable[[int], int], limit: int) -> None:
        """Memory that nothing has used."""
        self.lost = 0
        self._floor = floor
        self._limit = limit
        self._at: dict[int, Segment] = {}
        self._starts: list[int] = []
        self._sweep_at = _SWEEP

    # Accesses

    def touch(self, op: Operation, access: Access, epoch: int, clock: Clock) -> Sequence[Use]:
        """File an access of `op`, whose clock is `clock`; the earlier uses that race with it.

        A use comes once per segment that it shares with the access.
        """
        segment = self._at.get(access.address)
        segments: Sequence[Segment]
        if not access.sizes and segment and segment.end - segment.start == access.run:
            return self._visit((segment,), op, access, epoch, clock, None)
        if len(self._starts) > self._sweep_at:
            self._sweep()
        if access.sizes:
            extent: Extent = (access.address, access.run, access.sizes, access.strides)
            if count(extent) > _FEW_RUNS:
                return self._visit(self.cover(*span(extent)), op, access, epoch, clock, extent)
            segments = [s for low in runs(extent) for s in self.cover(low, low + access.run)]
        else:
            segments = self.cover(access.address, access.address + access.run)
        return self._visit(segments, op, access, epoch, clock, None)

    def _visit(
        self,
        segments: Sequence[Segment],
        op: Operation,
        access: Access,
        epoch: int,
        clock: Clock,
        extent: Extent | None,
    ) -> Sequence[Use]:
        found: Sequence[Use] = ()
        timeline, mode = op.timeline, access.mode
        writes = mode & _WRITE
        line = op.stack if op.stack >= 0 else op.name
        key = (line, mode) if extent is None else (line, mode, extent)
        known = clock.get
        for segment in segments:
            tracks = segment.tracks
            for other, track in tracks.items():
                if other != timeline and known(other, 0) < (
                    track.newest if writes else track.newest_write
                ):
                    hits = _conflicts(track, known(other, 0), segment, writes, extent)
                    found = [*found, *hits]
            own = tracks.get(timeline)
            if own is None:
                own = tracks[timeline] = Track(epoch)
            own.newest = epoch
            if writes:
                own.newest_write = epoch
            own.uses[key] = (epoch, op, access, segment.block, extent)
            if len(own.uses) > own.room:
                self._make_room(own, timeline)
        return found

    def _make_room(self, track: Track, timeline: int) -> None:
        """Forget what all threads have passed; then, at the limit, the oldest uses."""
        track.drop(self._floor(timeline))
        excess = len(track.uses) - self._limit
        if excess > 0:
            track.drop(sorted(use[0] for use in track.uses.values())[excess - 1])
            self.lost += excess
        track.room = min(max(_ROOM, 2 * len(track.uses)), self._limit)

    # Blocks

    def hand_out(self, block: Block) -> set[Block]:
        """The bytes of `block` are its own from now on; the blocks that they belonged to before."""
        segments = self.cover(block.start, block.end)
        former = {s.block for s in segments if s.block is not None}
        floors: dict[int, int] = {}
        for segment in segments:
            segment.block = block
            self._forget(segment, floors)
        if len(segments) > 1:
            self._merge(segments)
        return former

    def guard(self, block: Block, clock: Clock) -> None:
        """Rules M2, M5: the next owner comes after `clock`; forget uses that are ordered before."""
        for segment in self.cover(block.start, block.end):
            done = []
            for timeline, track in segment.tracks.items():
                epoch = clock.get(timeline, 0)
                if epoch >= track.newest:
                    done.append(timeline)
                elif epoch >= track.oldest:
                    track.drop(epoch)
            for timeline in done:
                del segment.tracks[timeline]

    def last_uses(self, block: Block) -> dict[int, Use]:
        """The last use of `block` by each timeline other than its owner."""
        found: dict[int, Use] = {}
        for segment in self.cover(block.start, block.end):
            for timeline, track in segment.tracks.items():
                if timeline != block.stream:
                    for use in track.uses.values():
                        if use[3] is block and (
                            timeline not in found or use[0] > found[timeline][0]
                        ):
                            found[timeline] = use
        return found

    def clear(self, block: Block) -> None:
        """Forget all uses of the bytes of `block`."""
        for segment in self.cover(block.start, block.end):
            segment.tracks.clear()

    def block_at(self, address: int) -> Block | None:
        """The block that the byte at `address` belongs to, or belonged to last."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        segment = self._at[self._starts[index]]
        return segment.block if address < segment.end else None

    # Segments

    def cover(self, start: int, end: int) -> Sequence[Segment]:
        """The segments that make up exactly ``start`` to ``end``, in order; split or made."""
        whole = self._at.get(start)
        if whole is not None and whole.end == end:
            return (whole,)
        self._split(start)
        self._split(end)
        found = []
        starts, position = self._starts, start
        index = bisect_left(starts, start)
        while position < end:
            following = starts[index] if index < len(starts) else end
            if following == position:
                segment = self._at[position]
            else:
                segment = self._at[position] = Segment(position, min(following, end), None)
                starts.insert(index, position)
            found.append(segment)
            position = segment.end
            index += 1
        return found

    def _split(self, at: int) -> None:
        """Make `at` a boundary if it lies within a segment."""
        index = bisect_right(self._starts, at) - 1
        if index < 0:
            return
        left = self._at[self._starts[index]]
        if left.start < at < left.end:
            right = self._at[at] = Segment(at, left.end, left.block)
            right.tracks = {timeline: track.copy() for timeline, track in left.tracks.items()}
            left.end = at
            insort(self._starts, at)

    def _forget(self, segment: Segment, floors: dict[int, int]) -> None:
        """Drop the tracks that all threads have passed."""
        for timeline in list(segment.tracks):
            if timeline not in floors:
                floors[timeline] = self._floor(timeline)
            if segment.tracks[timeline].newest <= floors[timeline]:
                del segment.tracks[timeline]

    def _merge(self, segments: Sequence[Segment]) -> None:
        """Join neighbours of one block that nothing uses any more."""
        last = segments[0]
        gone = []
        for segment in segments[1:]:
            if not last.tracks and not segment.tracks:
                last.end = segment.end
                gone.append(segment)
            else:
                last = segment
        self._remove(gone)

    def _sweep(self) -> None:
        """Drop segments that nothing uses and no block owns; next time at twice what is left."""
        floors: dict[int, int] = {}
        gone = []
        for segment in self._at.values():
            self._forget(segment, floors)
            owner = segment.block
            if not segment.tracks and (owner is None or (owner.freed and not owner.latent)):
                gone.append(segment)
        self._remove(gone)
        self._sweep_at = max(_SWEEP, 2 * len(self._starts))

    def _remove(self, segments: Sequence[Segment]) -> None:
        if len(segments) > _FEW_RUNS:
            for segment in segments:
                del self._at[segment.start]
            self._starts = sorted(self._at)
        else:
            for segment in segments:
                del self._at[segment.start]
                del self._starts[bisect_left(self._starts, segment.start)]


def _conflicts(
    track: Track, known: int, segment: Segment, writes: int, extent: Extent | None
) -> list[Use]:
    """The uses of `track` beyond epoch `known` that conflict with an access to `segment`.

    Where one of them is a use of the present block's bytes here, those of the blocks before it are
    left out: the same timeline made them earlier, so that what orders the one orders the others.
    """
    whole: Extent = (segment.start, segment.end - segment.start, (), ())
    found = []
    for use in track.uses.values():
        if use[0] > known and (writes or use[2].mode & _WRITE):
            gaps = use[4]
            if (gaps is None and extent is None) or overlaps(gaps or whole, extent or whole):
                found.append(use)
    if len(found) > 1:
        present = [use for use in found if use[3] is segment.block]
        if any(use[4] is None for use in present):
            return present
    return found
