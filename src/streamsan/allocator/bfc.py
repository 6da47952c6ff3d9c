"""The BFC arena of TensorFlow and XLA: best fit with coalescing, for all streams of a device.

Follows ``BFCAllocator`` (``xla/tsl/framework/bfc_allocator.cc``) with growth allowed and without
limits on fragmentation: chunks in multiples of 256 bytes, 21 bins of powers of two, best fit by
size and then address, regions that double. The deallocation policies are objects (rule M6).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import partial
from typing import TypedDict

from streamsan.allocator._arena import Arena
from streamsan.allocator._segments import blocks_of
from streamsan.allocator.contract import Block, Driver, Streams
from streamsan.allocator.policies import Policy

GRANULE = 256
"""All chunk sizes are multiples of this, in bytes."""
BINS = 21
"""Bin number n holds free chunks from ``GRANULE << n`` bytes up to the next bin; the last, all."""
MAX_REST = 128 << 20
"""A rest of this many bytes is split off even where it is less than what was asked for."""
FIRST_REGION = 2 << 20
"""Bytes of the first region; each further one is twice as large as the last."""
_BACK_OFF = 0.9
"""What a region is cut down to, again and again, while the driver has not got that much."""


class BinInfo(TypedDict):
    """One bin: its least chunk size, and the chunks of that size, free and live, with bytes."""

    size: int
    free_chunks: int
    free_bytes: int
    live_chunks: int
    live_bytes: int


def bin_of(size: int) -> int:
    """The bin for chunks of `size` bytes."""
    return min(BINS - 1, max(size // GRANULE, 1).bit_length() - 1)


class BfcAllocator(Arena):
    """The arena of one device, with at most `capacity` bytes from `driver` (rule M6)."""

    def __init__(self, driver: Driver, streams: Streams, capacity: int, policy: Policy) -> None:
        super().__init__(driver, streams, capacity)
        self._policy = policy
        self._bins: list[list[tuple[int, int, Block]]] = [[] for _ in range(BINS)]
        self._next_region = FIRST_REGION
        self._apart: dict[Block, None] = {}
        self.watches_uses = policy.watches_uses

    @property
    def name(self) -> str:
        """``bfc`` and the policy."""
        return f"bfc:{self._policy.name}"

    def allocate(self, size: int, stream: int, pool: int = 0) -> Block:
        """Hand out a chunk of at least `size` bytes to `stream`, as the policy allows.

        Raises OutOfMemory, ValueError where `size` is not positive, and CaptureRefused.
        """
        rounded = self._rounded(size, GRANULE, pool)
        if self._policy.poll():
            self._merge_apart()
        block = self._find(rounded, stream) or self._find_more(size, rounded, stream)
        if block.size >= 2 * rounded or block.size - rounded >= MAX_REST:
            self._cut(block, rounded)
        self._policy.taken(block, stream)
        block.mark = None
        return self._hand_out(block, size, stream)

    def free(self, block: Block) -> None:
        """Take a chunk back; the policy says for whom it is free now.

        Raises ValueError where the block is not live.
        """
        self._take_back(block)
        self._policy.freed(block)
        block.users = []
        self._put(block)

    def empty_cache(self) -> None:
        """Give the regions without a live chunk back to the driver."""
        self._policy.advance()
        self._policy.wait()
        self._merge_apart()
        for head in list(self._segments.values()):
            if head.free and not head.part:
                self._unfile(head)
                self._release(head, head.size)

    def histogram(self) -> list[BinInfo]:
        """Count the chunks of each bin's sizes."""
        found: list[BinInfo] = [
            {"size": GRANULE << n, "free_chunks": 0, "free_bytes": 0, "live_chunks": 0,
             "live_bytes": 0}
            for n in range(BINS)
        ]  # fmt: skip
        for head in self._segments.values():
            for block in blocks_of(head):
                entry = found[bin_of(block.size)]
                if block.free:
                    entry["free_chunks"] += 1
                    entry["free_bytes"] += block.size
                else:
                    entry["live_chunks"] += 1
                    entry["live_bytes"] += block.size
        return found

    # -- finding a chunk --------------------------------------------------------------------------

    def _find(self, size: int, stream: int) -> Block | None:
        """Take out the best fit among the chunks that `stream` may have."""
        for entries in self._bins[bin_of(size) :]:
            for index in range(bisect_left(entries, (size,)), len(entries)):
                block = entries[index][2]
                if self._policy.ready(block, stream):
                    self._unfile(block)
                    return block
        return None

    def _find_more(self, size: int, rounded: int, stream: int) -> Block:
        """Do, one after the other, what may bring a chunk, and look again after each."""
        grow = partial(self._grow, rounded, stream)
        for attempt in (self._advance, grow, self._wait, self._return_regions, grow):
            if attempt():
                block = self._find(rounded, stream)
                if block is not None:
                    return block
        raise self._out_of_memory(size)

    def _advance(self) -> bool:
        if self._policy.advance():
            self._merge_apart()
            return True
        return False

    def _grow(self, size: int, stream: int) -> bool:
        """Add a region of at least `size` bytes, twice as large as the last if it may be."""
        room = (self.capacity - self._stats.reserved_bytes.current) // GRANULE * GRANULE
        if size > room:
            return False
        doubled = False
        while self._next_region < size:
            self._next_region *= 2
            doubled = True
        wanted = min(self._next_region, room)
        while not self._reserve(wanted, stream):
            wanted = int(wanted * _BACK_OFF) // GRANULE * GRANULE
            if wanted < size:
                return False
        if not doubled:
            self._next_region *= 2
        return True

    def _wait(self) -> bool:
        self._stats.num_alloc_retries += 1
        if self._policy.wait():
            self._merge_apart()
            return True
        return False

    def _return_regions(self) -> bool:
        """Make room for a region that is large enough."""
        self.empty_cache()
        return False

    # -- filing chunks ----------------------------------------------------------------------------

    def _put(self, block: Block) -> Block:
        block = super()._put(block)
        if any(near is not None and near.free for near in (block.previous, block.next)):
            self._apart[block] = None
        return block

    def _merge_apart(self) -> None:
        """Merge what the policy kept apart before the device had come as far as it has now."""
        for block in list(self._apart):
            if block in self._apart:  # not merged with another one meanwhile
                self._unfile(block)
                self._put(block)

    def _mergeable(self, low: Block, high: Block) -> bool:
        return self._policy.mergeable(low, high)

    def _merge_marks(self, low: Block, high: Block) -> None:
        self._policy.merge(low, high)

    def _add(self, block: Block) -> None:
        insort(self._bins[bin_of(block.size)], (block.size, block.address, block))

    def _remove(self, block: Block) -> None:
        entries = self._bins[bin_of(block.size)]
        del entries[bisect_left(entries, (block.size, block.address))]
        self._apart.pop(block, None)
