"""Blocks inside segments: sorted free lists, splitting and merging."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from streamsan.allocator.contract import Block, SegmentInfo


class FreeList:
    """Free blocks of one stream and pool, by size and then address."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        # Addresses differ, so a comparison never gets as far as the blocks themselves.
        self._entries: list[tuple[int, int, Block]] = []

    def add(self, block: Block) -> None:
        """File a free block."""
        insort(self._entries, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        """Take a filed block out; its size and address must be those it was filed under."""
        del self._entries[bisect_left(self._entries, (block.size, block.address))]

    def take(self, size: int) -> Block | None:
        """Take the smallest block of at least `size` bytes out, of equals the lowest address."""
        index = bisect_left(self._entries, (size,))
        return self._entries.pop(index)[2] if index < len(self._entries) else None

    def whole_segments(self) -> list[Block]:
        """List the blocks that are segments by themselves."""
        return [b for _, _, b in self._entries if b.previous is None and b.next is None]


def split(block: Block, size: int) -> Block:
    """Cut `block` down to its first `size` bytes; the remainder, a new block."""
    rest = Block(block.address + size, block.size - size, block.stream, block.pool, block.small)
    rest.previous, rest.next = block, block.next
    if block.next is not None:
        block.next.previous = rest
    block.next = rest
    block.size = size
    return rest


def merge(low: Block, high: Block) -> None:
    """Let `low` take in its upper neighbour.

    The lower object lives on: the head of a segment stays the same object as long as it exists.
    """
    low.size += high.size
    low.next = high.next
    if high.next is not None:
        high.next.previous = low
    high.previous = high.next = None


def blocks_of(head: Block) -> Iterator[Block]:
    """Walk the blocks of a segment, upwards."""
    block: Block | None = head
    while block is not None:
        yield block
        block = block.next


def describe(head: Block) -> SegmentInfo:
    """Make the snapshot entry of a segment."""
    blocks = list(blocks_of(head))
    active = [b for b in blocks if not b.free]
    return {
        "address": head.address,
        "total_size": sum(b.size for b in blocks),
        "allocated_size": sum(b.size for b in blocks if b.allocated),
        "active_size": sum(b.size for b in active),
        "requested_size": sum(b.requested for b in active),
        "stream": head.stream,
        "segment_type": "small" if head.small else "large",
        "segment_pool_id": (0, head.pool),
        "blocks": [
            {
                "address": b.address,
                "size": b.size,
                "requested_size": 0 if b.free else b.requested,
                "state": b.state,
            }
            for b in blocks
        ],
    }
