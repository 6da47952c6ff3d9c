"""Shadow memory: which operations touched which bytes, and which of them conflict with a new one.

One `Shadow` covers one address space. Its segments are disjoint, and an access that touches a whole
segment is filed there without its extent; an access with many gaps is filed in all segments that
its span meets, and its bytes are compared exactly. History outlives a block, so that reuse of its
bytes is judged against its old owner.

A use is forgotten only if a later use of the same timeline, line of the program, mode and bytes
stands for it; if all that may still come is ordered after it (`floors`, or the guard of a free); or
if too much was used with no order at all, which `Losses` counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamsan.detect._blocks import Block
from streamsan.detect._losses import Losses
from streamsan.detect._segments import Segment, Segments, Track, Use
from streamsan.model.extent import Extent, count, is_canonical, overlaps, span, stretches
from streamsan.model.records import Access, Mode
from streamsan.order import Clock

_WRITE = int(Mode.WRITE)
_FEW_RUNS = 16
_SWEEP = 4096
MOST_PIECES = 1 << 14
"""Most segments with uses that are kept beside the first of each live block."""


class Shadow:
    """The shadow memory of one address space.

    `floors` has the epoch of each timeline that everything to come is ordered after; at most
    ``losses.limit`` uses are kept for one segment and timeline, and `losses` counts what was cut.
    """

    def __init__(self, floors: Clock, losses: Losses) -> None:
        """Memory that nothing has used."""
        self.segments = Segments()
        self._floors = floors
        self._losses = losses
        self._sweep_at = _SWEEP
        self._most = 0

    @property
    def pieces(self) -> int:
        """The most pieces that a sweep has seen, or all segments where there was none."""
        return self._most or min(len(self.segments), _SWEEP)

    # Accesses

    def place(self, access: Access) -> tuple[Sequence[Segment], Extent | None]:
        """The segments that an access touches all of; or with its extent, those that it meets."""
        if len(self.segments.at) > self._sweep_at:
            self._sweep()
        cover = self.segments.cover
        if not access.sizes and access.run > 0:
            return cover(access.address, access.address + access.run), None
        extent: Extent = (access.address, access.run, access.sizes, access.strides)
        if not is_canonical(extent):
            self._losses.malformed += 1
            return (), None
        if count(extent) > _FEW_RUNS:
            return self.segments.meet(*span(extent)), extent
        return [part for low, high in stretches(extent) for part in cover(low, high)], None

    def look(
        self, segment: Segment, timeline: int, writes: bool, clock: Clock, extent: Extent | None
    ) -> list[Use]:
        """The uses of a segment by other timelines that race with an access of `timeline`."""
        found: list[Use] = []
        for track in segment.tracks:
            newest = track.newest if writes else track.newest_write
            if newest and track.timeline != timeline:
                known = clock.get(track.timeline, 0)
                if known < newest:
                    found += self._conflicts(track, known, segment, writes, extent)
        return found

    def _conflicts(
        self, track: Track, known: int, segment: Segment, writes: bool, extent: Extent | None
    ) -> list[Use]:
        """The uses of `track` beyond epoch `known` that conflict with an access to `segment`.

        Where one of them is a use of the present block's bytes here, those of the blocks before it
        are left out: the same timeline made them earlier, so that what orders the one orders the
        others.
        """
        whole: Extent = (segment.start, segment.size, (), ())
        found = []
        for use in track.meeting(extent or whole):
            if use[0] > known and (writes or use[2].mode & _WRITE):
                gaps = use[4]
                if (gaps is None and extent is None) or self._meet(gaps or whole, extent or whole):
                    found.append(use)
        if len(found) > 1:
            present = [use for use in found if use[3] is segment.block]
            if any(use[4] is None and use[2].confidence for use in present):  # a guess hides none
                return present
            found.sort(key=_epoch, reverse=True)  # of those before, the last use is told first
        return found

    def _meet(self, left: Extent, right: Extent) -> bool:
        """Whether two extents overlap; where that takes too long to tell, they count as apart."""
        answer = overlaps(left, right)
        if answer is None:
            self._losses.undecided += 1
        return bool(answer)

    def make_room(self, track: Track) -> None:
        """Forget what all threads have passed; then, at the limit, an eighth, the oldest uses.

        An eighth, so that the search for them is paid for by the uses that come meanwhile.
        """
        track.drop(self._floors[track.timeline])
        limit = self._losses.limit
        excess = len(track.uses) - limit
        if excess > 0:
            before = len(track.uses)
            track.drop(sorted(use[0] for use in track.uses.values())[excess + limit // 8 - 1])
            self._losses.uses += before - len(track.uses)
        track.widen(limit)

    # Blocks

    def hand_out(self, block: Block) -> Sequence[Block]:
        """The bytes of `block` are its own from now on; the blocks that they belonged to before,
        some of them more than once.
        """
        if len(self.segments.at) > self._sweep_at:
            self._sweep()
        segments = self.segments.cover(block.start, block.end)
        former: list[Block] = []
        for segment in segments:
            if segment.block is not None:
                former.append(segment.block)
            segment.block = block
            if segment.tracks:
                self._forget(segment)
        if len(segments) > 1:
            self.segments.merge(segments)
        return former

    def clear(self, block: Block) -> None:
        """Forget all uses of the bytes of `block`."""
        for segment in self.segments.cover(block.start, block.end):
            segment.keep(())

    def block_at(self, address: int) -> Block | None:
        """The block that the byte at `address` belongs to, or belonged to last."""
        segment = self.segments.find(address)
        return segment.block if segment is not None else None

    # Forgetting

    def forget(self, timelines: set[int]) -> None:
        """Forget the uses of timelines that all to come is ordered after."""
        for segment in self.segments:
            segment.keep([t for t in segment.tracks if t.timeline not in timelines])

    def _forget(self, segment: Segment) -> None:
        """Drop the tracks that all threads have passed."""
        floors, tracks = self._floors, segment.tracks
        for track in tracks:
            if track.newest <= floors[track.timeline]:
                segment.keep([t for t in tracks if t.newest > floors[t.timeline]])
                break

    def _forget_release(self, block: Block, released: Clock) -> None:
        """Drop the clock of a free in stream order (M4) that all threads have passed."""
        floors = self._floors
        if all(epoch <= floors[timeline] for timeline, epoch in released.items()):
            block.released = None

    def _sweep(self) -> None:
        """Drop and join segments that say nothing; next time at twice what is left."""
        pieces: list[tuple[int, Segment]] = []
        block: Block | None = None

        def look(segment: Segment) -> None:
            nonlocal block
            self._forget(segment)
            if segment.block is not None and segment.block.released is not None:
                self._forget_release(segment.block, segment.block.released)
            first = segment.block is not block and segment.block and not segment.block.freed
            block = segment.block
            if segment.tracks and not first:
                pieces.append((_last(segment), segment))

        self.segments.tidy(look)
        self._most = max(self._most, len(pieces))
        if len(pieces) > MOST_PIECES:
            self._give_up(pieces)
        self._sweep_at = max(_SWEEP, 2 * len(self.segments))

    def _give_up(self, pieces: list[tuple[int, Segment]]) -> None:
        """Forget the uses of the pieces of memory that were used longest ago."""
        pieces.sort(key=lambda piece: (piece[0], piece[1].start))
        for _, segment in pieces[: len(pieces) - MOST_PIECES // 2]:
            self._losses.pieces += sum(len(track.uses) for track in segment.tracks)
            segment.keep(())
        self.segments.tidy()


def forget_guarded(segments: Sequence[Segment], clock: Clock) -> None:
    """Rules M2, M5, M6: who gets the bytes of `segments` next comes after `clock`; forget uses that
    are ordered before.
    """
    get = clock.get
    for segment in segments:
        passed = False
        for track in segment.tracks:
            epoch = get(track.timeline, 0)
            if epoch >= track.newest:
                passed = True
            elif epoch >= track.oldest:
                track.drop(epoch)
        if passed:
            segment.keep([t for t in segment.tracks if t.newest > get(t.timeline, 0)])


def last_uses(segments: Sequence[Segment], block: Block) -> dict[int, Use]:
    """The last use of `block`, which has `segments`, by each timeline other than its owner."""
    found: dict[int, Use] = {}
    owner = block.stream
    for segment in segments:
        for track in segment.tracks:
            timeline = track.timeline
            if timeline != owner:
                for use in track.uses.values():
                    if use[3] is block and (timeline not in found or use[0] > found[timeline][0]):
                        found[timeline] = use
    return found


def _epoch(use: Use) -> int:
    return use[0]


def _last(segment: Segment) -> int:
    """The number of the last operation that used a segment."""
    return max((use[1].seq for track in segment.tracks for use in track.uses.values()), default=0)
