"""What the allocators share that serve all streams of a device from the same segments."""

from __future__ import annotations

from abc import ABC, abstractmethod

from streamsan.allocator._accounted import Accounted
from streamsan.allocator._segments import merge, split
from streamsan.allocator.contract import (
    Block,
    CaptureRefused,
    Driver,
    OutOfMemory,
    Streams,
)


class Arena(Accounted, ABC):
    """Segments cut into blocks, with figures; an allocator adds the choice of a free block.

    It also files the free blocks, and says which of two neighbours may be one.
    """

    watches_uses = False

    def __init__(self, driver: Driver, streams: Streams, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._driver = driver
        self._streams = streams

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the allocator."""

    @abstractmethod
    def _add(self, block: Block) -> None:
        """File a free block."""

    @abstractmethod
    def _remove(self, block: Block) -> None:
        """Take a filed block out."""

    @abstractmethod
    def _mergeable(self, low: Block, high: Block) -> bool:
        """Whether two free neighbours may be one block."""

    @abstractmethod
    def _merge_marks(self, low: Block, high: Block) -> None:
        """Mark `low` for both of two free neighbours."""

    # -- the contract -----------------------------------------------------------------------------

    def retain_pool(self, pool: int) -> None:
        """Raise CaptureRefused: there are no private pools (rule G3)."""
        raise CaptureRefused(self.name)

    release_pool = retain_pool

    def begin_capture(self) -> None:
        """Raise CaptureRefused, as `retain_pool`."""
        raise CaptureRefused(self.name)

    end_capture = begin_capture

    def _rounded(self, size: int, unit: int, pool: int) -> int:
        """What a request takes, in multiples of `unit`. Raises ValueError and CaptureRefused."""
        if size <= 0:
            raise ValueError(f"cannot allocate {size} bytes")
        if pool:
            raise CaptureRefused(self.name)
        return -(-size // unit) * unit

    # -- blocks -----------------------------------------------------------------------------------

    def _hand_out(self, block: Block, size: int, stream: int) -> Block:
        """Make a block that was taken out of the free ones a live one of `stream`."""
        block.allocated = True
        block.requested = size
        block.stream = stream
        stats = self._stats
        stats.allocation.add(1)
        stats.active.add(1)
        stats.allocated_bytes.add(block.size)
        stats.active_bytes.add(block.size)
        stats.requested_bytes.add(size)
        return block

    def _take_back(self, block: Block) -> None:
        """Make a live block one that is neither live nor filed. Raises ValueError if it is not."""
        if not block.allocated:
            raise ValueError(f"not a live block: {block!r}")
        block.allocated = False
        stats = self._stats
        stats.allocation.subtract(1)
        stats.active.subtract(1)
        stats.allocated_bytes.subtract(block.size)
        stats.active_bytes.subtract(block.size)
        stats.requested_bytes.subtract(block.requested)

    def _file(self, block: Block) -> None:
        """Put a block among the free ones."""
        if block.part:
            self._stats.inactive_split.add(1)
            self._stats.inactive_split_bytes.add(block.size)
        self._add(block)

    def _unfile(self, block: Block) -> None:
        """Take a block out of the free ones."""
        if block.part:
            self._stats.inactive_split.subtract(1)
            self._stats.inactive_split_bytes.subtract(block.size)
        self._remove(block)

    def _cut(self, block: Block, size: int) -> None:
        """Put all but the first `size` bytes of a block just taken among the free ones."""
        block.allocated = True  # no neighbour of the rest to merge with
        rest = split(block, size)
        rest.mark = block.mark
        self._put(rest)

    def _put(self, block: Block) -> Block:
        """Put an unfiled block among the free ones, merged with its free neighbours."""
        while (high := block.next) is not None and high.free and self._mergeable(block, high):
            self._unfile(high)
            self._merge(block, high)
        while (low := block.previous) is not None and low.free and self._mergeable(low, block):
            self._unfile(low)
            self._merge(low, block)
            block = low
        self._file(block)
        return block

    def _merge(self, low: Block, high: Block) -> None:
        self._merge_marks(low, high)
        merge(low, high)

    # -- segments ---------------------------------------------------------------------------------

    def _reserve(self, size: int, stream: int) -> bool:
        """Get a segment from the driver and file it as one block; whether there was one."""
        if self._stats.reserved_bytes.current + size > self.capacity:
            return False
        address = self._driver.reserve(size)
        if address is None:
            return False
        self._stats.segment.add(1)
        self._stats.reserved_bytes.add(size)
        self._stats.num_device_alloc += 1
        block = self._segments[address] = Block(address, size, stream, 0, small=False)
        self._file(block)
        return True

    def _release(self, head: Block, size: int) -> None:
        """Give a segment, all of it unfiled, back to the driver (rule M3)."""
        del self._segments[head.address]
        self._stats.segment.subtract(1)
        self._stats.reserved_bytes.subtract(size)
        self._stats.num_device_free += 1
        self._driver.release(head.address, size)

    def _out_of_memory(self, size: int) -> OutOfMemory:
        stats = self._stats
        stats.num_ooms += 1
        allocated, reserved = stats.allocated_bytes.current, stats.reserved_bytes.current
        return OutOfMemory(size, self.capacity, allocated, reserved)
