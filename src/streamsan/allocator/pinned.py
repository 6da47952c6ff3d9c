"""PyTorch's caching allocator for pinned host memory.

Follows ``aten/src/ATen/core/CachingHostAllocator.h`` with its default settings.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from streamsan.allocator._accounted import Accounted
from streamsan.allocator.contract import Block, Driver, Events, OutOfMemory


class PinnedAllocator(Accounted):
    """Pinned host memory in blocks of a power of two bytes, each a reservation of its own.

    A freed block serves the next request of its size, last freed first, whatever stream that is
    for, once the events of all streams recorded on it are done (rule M5).
    """

    def __init__(self, driver: Driver, events: Events, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._driver = driver
        self._events = events
        self._free: dict[int, list[Block]] = {}
        self._waiting: deque[tuple[Any, Block]] = deque()

    def allocate(self, size: int, stream: int = -1, pool: int = 0) -> Block:
        """Hand out a block of at least `size` bytes.

        It belongs to no stream: `stream` and `pool` are noted on a block when it is made and
        decide nothing. Raises OutOfMemory, and ValueError where `size` is not positive.
        """
        if size <= 0:
            raise ValueError(f"cannot allocate {size} bytes")
        if self._waiting:
            self._poll()
        rounded = 1 << (size - 1).bit_length()
        free = self._free.get(rounded)
        block = free.pop() if free else self._reserve(size, rounded, stream, pool)
        block.allocated = True
        block.requested = size
        stats = self._stats
        stats.allocation.add(1)
        stats.active.add(1)
        stats.allocated_bytes.add(rounded)
        stats.active_bytes.add(rounded)
        stats.requested_bytes.add(size)
        return block

    def free(self, block: Block) -> None:
        """Take `block` back from the program; record one event on each stream that used it.

        Raises ValueError where the block is not live.
        """
        if not block.allocated:
            raise ValueError(f"not a live block: {block!r}")
        block.allocated = False
        self._stats.allocation.subtract(1)
        self._stats.allocated_bytes.subtract(block.size)
        users, block.users = block.users, []
        block.pending = len(users)
        for stream in users:
            self._waiting.append((self._events.record(stream), block))
        if not users:
            self._file(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that `stream` uses `block` (rule M5). Raises ValueError where it is not live."""
        if not block.allocated:
            raise ValueError(f"not a live block: {block!r}")
        if stream not in block.users:
            block.users.append(stream)

    def empty_cache(self) -> None:
        """Give the free blocks back; those with outstanding events stay."""
        self._poll()
        for blocks in self._free.values():
            for block in blocks:
                del self._segments[block.address]
                self._stats.segment.subtract(1)
                self._stats.reserved_bytes.subtract(block.size)
                self._stats.num_device_free += 1
                self._driver.release(block.address, block.size)
        self._free.clear()

    def _reserve(self, size: int, rounded: int, stream: int, pool: int) -> Block:
        stats = self._stats
        reserved = stats.reserved_bytes.current
        fits = reserved + rounded <= self.capacity
        address = self._driver.reserve(rounded) if fits else None
        if address is None:
            stats.num_ooms += 1
            raise OutOfMemory(size, self.capacity, stats.allocated_bytes.current, reserved)
        stats.segment.add(1)
        stats.reserved_bytes.add(rounded)
        stats.num_device_alloc += 1
        block = self._segments[address] = Block(address, rounded, stream, pool, small=False)
        return block

    def _poll(self) -> None:
        """File the blocks whose events are done.

        There is one queue for all streams: the first event not done ends the look, even at
        blocks whose streams are idle.
        """
        while self._waiting and self._events.done(self._waiting[0][0]):
            block = self._waiting.popleft()[1]
            block.pending -= 1
            if not block.pending:
                self._file(block)

    def _file(self, block: Block) -> None:
        self._stats.active.subtract(1)
        self._stats.active_bytes.subtract(block.size)
        self._stats.requested_bytes.subtract(block.requested)
        self._free.setdefault(block.size, []).append(block)
