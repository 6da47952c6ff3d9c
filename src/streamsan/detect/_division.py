"""Dividing a run between several checkers, each of which looks after a share of its memory.

Two accesses can only race where their bytes are joined by a chain of overlapping accesses and
blocks. Such an *island* of an address space goes to one checker whole. Every checker follows the
order of all operations, and compares and files only what touches its own islands, so that the
findings of all of them together are those of one checker, at a part of the time each.

Islands with blocks whose allocation or free is work of a stream (rule M4) are everybody's: all
checkers need the order that they give. The first checker tells what is found there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from streamsan.detect._blocks import Block
from streamsan.model import records as r
from streamsan.model.extent import Extent, is_canonical, span

Islands = dict[int, tuple[list[int], list[int]]]
"""For each address space, the first bytes of its islands, ascending, and whose each one is."""

_ALL = r.NONE
_SPANS = 1 << 18
_KNOWN = 1 << 16


@dataclass(frozen=True)
class Division:
    """The share number `share` of a run; `islands` says whose each byte is."""

    share: int
    islands: Islands
    _known: dict[tuple[int, int], int] = field(default_factory=dict, repr=False, compare=False)

    def owner(self, space: int, address: int) -> int:
        """The share that tells what is found at a byte."""
        return max(0, self._of(space, address))

    def owns(self, space: int, address: int) -> bool:
        """Whether this share keeps account of a byte."""
        return self._of(space, address) in (self.share, _ALL)

    def mine(self, op: r.Operation) -> list[r.Access]:
        """The accesses of an operation that this share keeps account of."""
        get, both = self._known.get, (self.share, _ALL)
        found = []
        for access in op.accesses:
            owner = get((access.space, access.address))  # most bytes are used many times
            if owner is None:
                owner = self._of(access.space, access.address)
            if owner in both:
                found.append(access)
        return found

    def tells(self, space: int, address: int) -> bool:
        """Whether this share tells what is found at a byte."""
        return self.owner(space, address) == self.share

    def shared(self, op: r.Operation) -> bool:
        """Whether several shares tell what is found at the bytes of an operation."""
        return len({self.owner(access.space, access.address) for access in op.accesses}) > 1

    def _of(self, space: int, address: int) -> int:
        found = self._known.get((space, address))
        if found is None:
            if len(self._known) > _KNOWN:
                self._known.clear()
            found = self._known[space, address] = self._find(space, address)
        return found

    def _find(self, space: int, address: int) -> int:
        starts, owners = self.islands.get(space, ((), ()))
        index = bisect_right(starts, address) - 1
        return owners[index] if index >= 0 else 0


class Survey:
    """Reads a run once to find its islands.

    `divisible` turns false where parts would not tell the same as the whole: operations that are
    not numbered in order, threads that nobody started, accesses that name no bytes.
    """

    def __init__(self) -> None:
        """A run that has not begun."""
        self.divisible = True
        self.records = 0
        self._spans: dict[int, dict[tuple[int, int], int]] = {}
        self._everybodys: set[tuple[int, int]] = set()
        self._sequence = r.NONE
        self._threads: set[int] = set()

    def feed(self, record: r.AnyRecord) -> None:
        """Take the next record of the run."""
        self.records += 1
        kind = type(record)
        if kind is r.Operation:
            assert isinstance(record, r.Operation)
            self._operation(record)
        elif kind is r.Alloc:
            assert isinstance(record, r.Alloc)
            self._add(record.space, record.address, record.address + record.size)
            if Block(record).freed_in_order:
                self._everybodys.add((record.space, record.address))
        elif kind is r.ThreadDef:
            assert isinstance(record, r.ThreadDef)
            self.divisible &= not self._threads or record.parent in self._threads
            self._threads.add(record.timeline)

    def _operation(self, op: r.Operation) -> None:
        self.divisible &= op.seq > self._sequence and op.thread in self._threads
        self._sequence = op.seq
        for access in op.accesses:
            start, end = access.address, access.address + access.run
            if access.sizes or end <= start:
                extent: Extent = (access.address, access.run, access.sizes, access.strides)
                if not is_canonical(extent):
                    self.divisible = False
                    continue
                start, end = span(extent)
            self._add(access.space, start, end)

    def _add(self, space: int, start: int, end: int) -> None:
        spans = self._spans.get(space)
        if spans is None:
            spans = self._spans[space] = {}
        spans[start, end] = spans.get((start, end), 0) + 1
        if len(spans) > _SPANS:
            self._spans[space] = _joined(spans)

    def divide(self, shares: int) -> list[Division]:
        """At most `shares` shares of about the same weight; none where the run is not divisible."""
        if not self.divisible:
            return []
        weights = {space: _joined(spans) for space, spans in self._spans.items()}
        islands: Islands = {
            space: ([start for start, _ in joined], [r.NONE] * len(joined))
            for space, joined in weights.items()
        }
        everybodys = {
            (space, bisect_right(islands[space][0], address) - 1)
            for space, address in self._everybodys
            if space in islands
        }
        found = sorted(
            ((weight, space, index) for space, joined in weights.items()
             for index, weight in enumerate(joined.values()) if (space, index) not in everybodys),
            reverse=True,
        )  # fmt: skip
        loads = [0] * min(shares, len(found))
        for weight, space, index in found:  # the heaviest first, to who has least
            lightest = loads.index(min(loads))
            islands[space][1][index] = lightest
            loads[lightest] += weight
        return [Division(share, islands) for share in range(len(loads))]


def _joined(spans: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """The islands that spans make up, with the sums of their weights."""
    islands: dict[tuple[int, int], int] = {}
    first = last = weight = 0
    for (start, end), count in sorted(spans.items()):
        if weight and start < last:
            last, weight = max(last, end), weight + count
            continue
        if weight:
            islands[first, last] = weight
        first, last, weight = start, end, count
    if weight:
        islands[first, last] = weight
    return islands
