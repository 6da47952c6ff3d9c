"""PyTorch's caching allocator for device memory: which address a request gets, and when again.

Follows ``c10/cuda/CUDACachingAllocator.cpp`` with its default settings (no expandable segments,
no limit on splitting, no rounding divisions, no collection threshold).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from streamsan.allocator._accounted import Accounted
from streamsan.allocator._segments import FreeList, merge, split
from streamsan.allocator.contract import Block, Driver, Events, OutOfMemory

MIN_BLOCK = 512
"""All block sizes are multiples of this."""
SMALL_REQUEST = 1 << 20
"""Requests up to this size come from small segments."""
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
"""Size of a segment for requests above `SMALL_REQUEST` and below `OWN_SEGMENT`."""
OWN_SEGMENT = 10 << 20
"""Requests from this size on get a segment of their own, a multiple of `SEGMENT_UNIT`."""
SEGMENT_UNIT = 2 << 20


def round_up(size: int, unit: int) -> int:
    """Round `size` up to a multiple of `unit`."""
    return -(-size // unit) * unit


def segment_size(size: int) -> int:
    """Say what to reserve from the driver for a rounded request that no free block serves."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < OWN_SEGMENT else round_up(size, SEGMENT_UNIT)


class CachingAllocator(Accounted):
    """The allocator of one device, with at most `capacity` bytes from `driver` (rules M1 to M3).

    Pool 0 is the common one; any other number is a private pool (of graph captures), whose
    memory serves no other pool as long as it has users (rule G3).
    """

    name = "caching"
    watches_uses = False
    looks_first = True
    """Whether each request begins with a look at which blocks are free again."""

    def __init__(self, driver: Driver, events: Events, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._driver = driver
        self._events = events
        self._free: dict[tuple[int, int, bool], FreeList] = {}
        self._waiting: dict[int, deque[tuple[Any, Block]]] = {}
        self._deferred: list[Block] = []
        self._captures = 0
        self._pool_users: dict[int, int] = {}

    def allocate(self, size: int, stream: int, pool: int = 0) -> Block:
        """Hand out a block of at least `size` bytes for `stream`.

        It is the best fit among the free blocks of that stream and pool, else the start of a new
        segment. Raises OutOfMemory, and ValueError where `size` is not positive.
        """
        if size <= 0:
            raise ValueError(f"cannot allocate {size} bytes")
        if pool and pool not in self._pool_users:
            self.retain_pool(pool)
        if self._waiting and self.looks_first and not self._captures:
            self._poll()
        rounded = round_up(size, MIN_BLOCK)
        small = rounded <= SMALL_REQUEST
        free = self._free_list(stream, pool, small)
        block = free.take(rounded) or self._new_segment(size, rounded, stream, pool)
        rest = block.size - rounded
        was_part = block.part
        if rest >= MIN_BLOCK if small else rest > SMALL_REQUEST:
            free.add(split(block, rounded))
            change = (0, -block.size) if was_part else (1, rest)
        else:
            change = (-1, -block.size) if was_part else (0, 0)
        block.allocated = True
        block.requested = size
        stats = self._stats
        stats.allocation.add(1, small)
        stats.active.add(1, small)
        stats.allocated_bytes.add(block.size, small)
        stats.active_bytes.add(block.size, small)
        stats.requested_bytes.add(size, small)
        stats.inactive_split.add(change[0], small)
        stats.inactive_split_bytes.add(change[1], small)
        return block

    def free(self, block: Block) -> None:
        """Take `block` back from the program.

        Its owner stream may have it at once (rule M1) or, where other streams are recorded on it,
        once these have done the work they have by now (rule M2). Raises ValueError where the
        block is not live.
        """
        if not block.allocated:
            raise ValueError(f"not a live block: {block!r}")
        block.allocated = False
        self._stats.allocation.subtract(1, block.small)
        self._stats.allocated_bytes.subtract(block.size, block.small)
        if self._captures and block.users:
            self._deferred.append(block)
        else:
            self._give_up(block)

    def retain_pool(self, pool: int) -> None:
        """Count one more graph that uses a private pool; a first allocation from it does too."""
        self._pool_users[pool] = self._pool_users.get(pool, 0) + 1

    def release_pool(self, pool: int) -> None:
        """Count one graph less that uses a private pool.

        After the last one, its unused segments go back to the driver with the next `empty_cache`
        or shortage, as in PyTorch. Raises KeyError where the pool is unknown.
        """
        self._pool_users[pool] -= 1

    def begin_capture(self) -> None:
        """Record and query no event until `end_capture`, once for each graph capture."""
        self._captures += 1

    def end_capture(self) -> None:
        """End one capture; after the last, blocks freed meanwhile get the events they need."""
        self._captures -= 1
        if not self._captures:
            deferred, self._deferred = self._deferred, []
            for block in deferred:
                self._give_up(block)

    def empty_cache(self) -> None:
        """Wait for all outstanding events, then give all unused segments back (rule M3)."""
        if not self._captures:
            self._drain()
        for key in sorted(self._free, key=lambda k: (k[1], k[2], k[0])):
            if self._pool_users.get(key[1], 0) <= 0:
                self._release_segments(self._free[key])

    def _free_list(self, stream: int, pool: int, small: bool) -> FreeList:
        key = stream, pool, small
        found = self._free.get(key)
        if found is None:
            found = self._free[key] = FreeList()
        return found

    def _new_segment(self, size: int, rounded: int, stream: int, pool: int) -> Block:
        """Reserve a segment as one block, if need be after emptying the cache."""
        wanted = segment_size(rounded)
        address = self._reserve(wanted)
        if address is None:
            self._stats.num_alloc_retries += 1
            self.empty_cache()
            address = self._reserve(wanted)
        stats = self._stats
        if address is None:
            stats.num_ooms += 1
            allocated, reserved = stats.allocated_bytes.current, stats.reserved_bytes.current
            raise OutOfMemory(size, self.capacity, allocated, reserved)
        block = Block(address, wanted, stream, pool, rounded <= SMALL_REQUEST)
        stats.segment.add(1, block.small)
        stats.reserved_bytes.add(wanted, block.small)
        stats.num_device_alloc += 1
        self._segments[address] = block
        return block

    def _reserve(self, size: int) -> int | None:
        if self._stats.reserved_bytes.current + size > self.capacity:
            return None
        return self._driver.reserve(size)

    def _release_segments(self, free: FreeList) -> None:
        for block in free.whole_segments():
            free.remove(block)
            del self._segments[block.address]
            self._stats.segment.subtract(1, block.small)
            self._stats.reserved_bytes.subtract(block.size, block.small)
            self._stats.num_device_free += 1
            self._driver.release(block.address, block.size)

    def _file(self, block: Block) -> None:
        """Put a block among the free ones, merged with its free neighbours."""
        stats, small = self._stats, block.small
        stats.active.subtract(1, small)
        stats.active_bytes.subtract(block.size, small)
        stats.requested_bytes.subtract(block.requested, small)
        free = self._free_list(block.stream, block.pool, block.small)
        low, high = block.previous, block.next
        parts = size = 0
        if high is not None and high.free:
            free.remove(high)
            parts, size = parts - 1, size - high.size
            merge(block, high)
        if low is not None and low.free:
            free.remove(low)
            parts, size = parts - 1, size - low.size
            merge(low, block)
            block = low
        if block.part:
            parts, size = parts + 1, size + block.size
        free.add(block)
        stats.inactive_split.add(parts, small)
        stats.inactive_split_bytes.add(size, small)

    def _give_up(self, block: Block) -> None:
        """Hold a freed block back by one event on each stream recorded on it (rule M2)."""
        users, block.users = block.users, []
        if users:
            self._guard(block, users)
        else:
            self._file(block)

    def _guard(self, block: Block, streams: Sequence[int]) -> None:
        """Hold a block back by one event on each of some streams."""
        block.pending = len(streams)
        for stream in streams:
            token = self._events.record(stream)
            self._waiting.setdefault(stream, deque()).append((token, block))

    def _poll(self) -> None:
        """File the blocks whose events are done.

        Events of a stream finish in order, so the first one not done ends the look at it, and the
        last one done tells of all.
        """
        done = self._events.done
        for stream, queue in list(self._waiting.items()):
            if done(queue[0][0]):
                self._passed(queue.popleft()[1])
                over = bool(queue) and done(queue[-1][0])
                while queue and (over or done(queue[0][0])):
                    self._passed(queue.popleft()[1])
            if not queue:
                del self._waiting[stream]

    def _drain(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            for queue in waiting.values():
                for token, block in queue:
                    self._events.wait(token)
                    self._passed(block)

    def _passed(self, block: Block) -> None:
        """One event of a block is done; the last of them makes it free."""
        block.pending -= 1
        if not block.pending:
            self._file(block)
