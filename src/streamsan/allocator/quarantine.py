"""The debugging allocator: freed blocks are poisoned, and kept until nothing can use them."""

from __future__ import annotations

from streamsan.allocator.caching import SMALL_REQUEST, CachingAllocator
from streamsan.allocator.contract import Block, CaptureRefused, Driver, Streams


class QuarantineAllocator(CachingAllocator):
    """A caching allocator that fills freed blocks with NaN, and holds them back.

    The fill is work of the owner's stream, which first waits for the streams recorded on the block:
    a use that nothing orders before the free may find NaN instead of plausible old values. The
    block is free again when all that the device was given up to the fill is over, so that such a
    use finds no new owner's values either.
    """

    name = "quarantine"
    looks_first = False

    def __init__(self, driver: Driver, streams: Streams, capacity: int) -> None:
        super().__init__(driver, streams, capacity)
        self._streams = streams

    def retain_pool(self, pool: int) -> None:
        """Raise CaptureRefused: a fill in the middle of a capture would be captured."""
        raise CaptureRefused(self.name)

    def _new_segment(self, size: int, rounded: int, stream: int, pool: int) -> Block:
        """Only where no free block serves is it worth to ask how far the device has come."""
        self._poll()
        found = self._free_list(stream, pool, rounded <= SMALL_REQUEST).take(rounded)
        return found or super()._new_segment(size, rounded, stream, pool)

    def _give_up(self, block: Block) -> None:
        owner, streams = block.stream, self._streams
        users, block.users = block.users, []
        for user in users:
            streams.order(owner, streams.record(user))
        streams.fill(owner, block.address, block.size)
        self._guard(block, list(dict.fromkeys((owner, *streams.all()))))
