"""Segments: stretches of an address space, and the uses that each timeline made of them.

`Segments` is a map of disjoint intervals, by start address. Its cost per look-up does not depend on
how many there are where boundaries are the same as before, which is by far the most common.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Sequence

from streamsan.detect._blocks import Block
from streamsan.detect._views import Key, Views
from streamsan.model.extent import Extent
from streamsan.model.records import Access, Operation

Use = tuple[int, Operation, Access, "Block | None", "Extent | None"]
"""Epoch, operation, access, block of the bytes at that time, and the extent if it has gaps."""

_ROOM = 16
_FEW = 16


class Track:
    """The uses that one `timeline` made of one segment.

    `newest`, `newest_write` and `oldest` bound their epochs, so that one comparison tells that all
    are ordered, or none; `room` is the number of uses at which it is worth to look for old ones.
    `views` are those of the uses that have gaps, if there are any.
    """

    __slots__ = ("newest", "newest_write", "oldest", "room", "timeline", "uses", "views")

    def __init__(self, timeline: int, epoch: int) -> None:
        """A track whose first use has that epoch."""
        self.timeline = timeline
        self.newest = self.oldest = epoch
        self.newest_write = 0
        self.room = _ROOM
        self.uses: dict[Key, Use] = {}
        self.views: Views | None = None

    def copy(self) -> Track:
        """The same track, for the other half of a segment that is split."""
        twin = Track(self.timeline, self.oldest)
        twin.newest, twin.newest_write, twin.room = self.newest, self.newest_write, self.room
        twin.uses = self.uses.copy()
        if self.views is not None:
            twin.views = twin._indexed()
        return twin

    def drop(self, epoch: int) -> None:
        """Forget all uses up to `epoch`."""
        self.uses = {key: use for key, use in self.uses.items() if use[0] > epoch}
        self.oldest = epoch + 1
        if self.views is not None:
            self.views = self._indexed()

    def index(self, key: Key, extent: Extent) -> None:
        """Find the use of that key, which is about to be kept, by its `extent`, which has gaps."""
        if key not in self.uses:
            if self.views is None:
                self.views = Views()
            self.views.add(key, extent)

    def _indexed(self) -> Views | None:
        """The views among the uses."""
        views = Views()
        for key, use in self.uses.items():
            if use[4] is not None:
                views.add(key, use[4])
        return views if len(views) else None

    def meeting(self, extent: Extent) -> Collection[Use]:
        """The uses that may share a byte with an extent, in the order of `uses`."""
        if self.views is None:
            return self.uses.values()
        near = self.views.near(extent)
        if not near and len(self.views) == len(self.uses):
            return ()
        return [use for key, use in self.uses.items() if use[4] is None or key in near]

    def widen(self, limit: int) -> None:
        """Have room for as many uses again, up to `limit`."""
        self.room = min(max(_ROOM, 2 * len(self.uses)), limit)


class Segment:
    """Bytes ``start`` to ``end`` (exclusive), `size` of them, and their latest block.

    `tracks` are those of the timelines that used them, in the order of their first uses; `alone` is
    the timeline where there is just one.
    """

    __slots__ = ("alone", "block", "end", "size", "start", "tracks")

    def __init__(self, start: int, end: int, block: Block | None) -> None:
        """Bytes that nothing has used."""
        self.start, self.end, self.size, self.block = start, end, end - start, block
        self.tracks: Sequence[Track] = ()
        self.alone: int | None = None

    def keep(self, tracks: Sequence[Track]) -> None:
        """Have these tracks and no others."""
        self.tracks = tracks
        self.alone = tracks[0].timeline if len(tracks) == 1 else None

    def resize(self, end: int) -> None:
        """Let it end elsewhere."""
        self.end, self.size = end, end - self.start

    def track(self, timeline: int, epoch: int) -> Track:
        """The track of `timeline`, made for a first use of that epoch if there is none."""
        for track in self.tracks:
            if track.timeline == timeline:
                return track
        track = Track(timeline, epoch)
        self.keep([*self.tracks, track])
        return track

    @property
    def wanted(self) -> bool:
        """Whether it says anything: a use, or a block that lives, has a latent race, or was freed
        in an order that its next owner takes over (M4).
        """
        block = self.block
        return bool(self.tracks) or (
            block is not None
            and (not block.freed or bool(block.latent) or block.released is not None)
        )


class Segments:
    """The segments of an address space."""

    def __init__(self) -> None:
        """Not one."""
        self.at: dict[int, Segment] = {}
        """By start address."""
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[Segment]:
        """All of them, by address."""
        return map(self.at.__getitem__, self._starts)

    def find(self, address: int) -> Segment | None:
        """The segment that holds the byte at `address`."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        segment = self.at[self._starts[index]]
        return segment if address < segment.end else None

    def cover(self, start: int, end: int) -> Sequence[Segment]:
        """The segments that make up exactly ``start`` to ``end``, in order; split or made.

        Most bytes are used as they were before, so that following the ends is enough.
        """
        at = self.at
        segment = at.get(start)
        if segment is not None and segment.end == end:
            return (segment,)
        if start >= end:
            return ()
        if segment is None:
            self._split(start)
        found: list[Segment] = []
        position = start
        while position < end:
            segment = at.get(position)
            if segment is None:
                self._split(end)
                return self._fill(start, end)
            found.append(segment)
            position = segment.end
        if position > end:
            self._cut(found[-1], end)
        return found

    def _fill(self, start: int, end: int) -> Sequence[Segment]:
        """The segments from `start` to `end`, which are boundaries; makes some of what has none."""
        found: list[Segment] = []
        starts, position = self._starts, start
        first = index = bisect_left(starts, start)
        while position < end:
            following = starts[index] if index < len(starts) else end
            if following == position:
                segment = self.at[position]
                index += 1
            else:
                segment = self.at[position] = Segment(position, min(following, end), None)
            found.append(segment)
            position = segment.end
        if len(found) > index - first:  # in one go: there may be many gaps
            starts[first:index] = [segment.start for segment in found]
        return found

    def meet(self, start: int, end: int) -> Sequence[Segment]:
        """The segments that hold the bytes ``start`` to ``end``, none of them split."""
        first, last = self.find(start), self.find(end - 1)
        return self.cover(first.start if first else start, last.end if last else end)

    def _split(self, at: int) -> None:
        """Make `at` a boundary if it lies within a segment."""
        left = self.find(at)
        if left is not None and left.start < at:
            self._cut(left, at)

    def _cut(self, left: Segment, at: int) -> None:
        """Make `at`, which lies within a segment, a boundary."""
        right = self.at[at] = Segment(at, left.end, left.block)
        right.keep([track.copy() for track in left.tracks])
        left.resize(at)
        insort(self._starts, at)

    def merge(self, segments: Sequence[Segment]) -> None:
        """Join neighbours of one block, given in order, that nothing uses any more."""
        last = segments[0]
        gone = []
        for segment in segments[1:]:
            if _same(last, segment):
                last.resize(segment.end)
                gone.append(segment.start)
            else:
                last = segment
        if len(gone) > _FEW:
            for start in gone:
                del self.at[start]
            self._starts = sorted(self.at)
        else:
            for start in gone:
                del self.at[start]
                del self._starts[bisect_left(self._starts, start)]

    def tidy(self, look: Callable[[Segment], None] | None = None) -> None:
        """Let `look` see each segment; drop those that say nothing, and join the others."""
        kept: list[Segment] = []
        for segment in self:
            if look is not None:
                look(segment)
            if kept and kept[-1].end == segment.start and _same(kept[-1], segment):
                kept[-1].resize(segment.end)
            elif segment.wanted:
                kept.append(segment)
        self.at.clear()  # whoever looks at it goes on looking
        self.at.update((segment.start, segment) for segment in kept)
        self._starts = list(self.at)


def _same(left: Segment, right: Segment) -> bool:
    return left.block is right.block and not left.tracks and not right.tracks
