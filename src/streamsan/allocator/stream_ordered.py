"""Stream-ordered allocation, as ``cudaMallocAsync`` does it from one memory pool.

Follows the stream-ordered allocator of the CUDA programming guide: memory freed in a stream's
order serves that stream at once, and another one behind a dependency that the driver inserts
(``cudaMemPoolReuseAllowInternalDependencies``). The pool keeps what it has, as PyTorch's backend
of that name sets it up (release threshold without limit), until it is trimmed.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from streamsan.allocator._arena import Arena
from streamsan.allocator._segments import blocks_of
from streamsan.allocator.contract import Block, Driver, Streams
from streamsan.allocator.policies import Event

UNIT = 512
"""All block sizes are multiples of this, in bytes."""
SEGMENT_UNIT = 32 << 20
"""The pool grows by multiples of this, in bytes."""


class StreamOrderedAllocator(Arena):
    """The memory pool of one device, with at most `capacity` bytes from `driver` (rule M4).

    A free is a point of the owner's stream, which waits for the streams recorded on the block. A
    stream other than the owner's that gets the block comes after that point.
    """

    name = "stream-ordered"

    def __init__(self, driver: Driver, streams: Streams, capacity: int) -> None:
        super().__init__(driver, streams, capacity)
        self._points = Event(streams)
        self._free: list[tuple[int, int, Block]] = []

    def allocate(self, size: int, stream: int, pool: int = 0) -> Block:
        """Hand out a block of at least `size` bytes, valid in the order of `stream` from here on.

        Raises OutOfMemory, ValueError where `size` is not positive, and CaptureRefused.
        """
        rounded = self._rounded(size, UNIT, pool)
        block = self._find(rounded, stream)
        if block is None:
            block = self._grow(size, rounded, stream)
        self._unfile(block)
        if block.size > rounded:
            self._cut(block, rounded)
        self._points.taken(block, stream)
        block.mark = None
        return self._hand_out(block, size, stream)

    def free(self, block: Block) -> None:
        """Take a block back, in the order of its owner's stream, behind those recorded on it.

        Raises ValueError where the block is not live.
        """
        self._take_back(block)
        users, block.users = block.users, []
        for user in users:
            self._streams.order(block.stream, self._streams.record(user))
        self._points.freed(block)
        self._put(block)

    def empty_cache(self) -> None:
        """Give all segments without a live block back, as ``cudaMemPoolTrimTo`` with 0 does."""
        self.trim(0)

    def trim(self, keep: int) -> None:
        """Give segments without a live block back until no more than `keep` bytes are reserved."""
        for head in list(self._segments.values()):
            blocks = list(blocks_of(head))
            if self._stats.reserved_bytes.current > keep and all(b.free for b in blocks):
                for block in blocks:
                    self._unfile(block)
                self._release(head, sum(b.size for b in blocks))

    def _find(self, size: int, stream: int) -> Block | None:
        """The best fit among the blocks last owned by `stream`, else among all."""
        free = self._free
        start = bisect_left(free, (size,))
        for index in range(start, len(free)):
            if free[index][2].stream == stream:
                return free[index][2]
        return free[start][2] if start < len(free) else None

    def _grow(self, size: int, rounded: int, stream: int) -> Block:
        """A new segment as one block, if need be after trimming the pool."""
        wanted = -(-rounded // SEGMENT_UNIT) * SEGMENT_UNIT
        for last in (False, True):
            if self._reserve(wanted, stream) or self._reserve(rounded, stream):
                block = self._find(rounded, stream)
                if block is not None:
                    return block
            if not last:
                self._stats.num_alloc_retries += 1
                self.trim(0)
        raise self._out_of_memory(size)

    def _mergeable(self, low: Block, high: Block) -> bool:
        """Blocks of one stream may merge; between two, a dependency is worth avoiding."""
        return low.stream == high.stream or low.mark is high.mark is None

    def _merge_marks(self, low: Block, high: Block) -> None:
        self._points.merge(low, high)

    def _add(self, block: Block) -> None:
        insort(self._free, (block.size, block.address, block))

    def _remove(self, block: Block) -> None:
        del self._free[bisect_left(self._free, (block.size, block.address))]
