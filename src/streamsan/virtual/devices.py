"""One virtual GPU: its streams, its allocator, and what its driver does for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsan.allocator.caching import CachingAllocator
from streamsan.allocator.contract import Block
from streamsan.virtual.memory import Range
from streamsan.virtual.streams import Stream, Task, drain

if TYPE_CHECKING:
    from streamsan.virtual.gpu import Gpu

POOL_STREAMS = 32
"""Streams of a device and priority; further stream objects share them, as in PyTorch's pools."""

PRIORITIES = (0, -3)
"""The least and the most urgent priority of a stream; others count as the nearer of the two."""


class StreamEvents:
    """How the allocators learn what has finished: points of streams, by the stream's number."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def record(self, stream: int) -> Task | None:
        """The last task of the stream, or None when it is idle."""
        return self._gpu.numbered[stream].tail

    def done(self, token: Task | None) -> bool:
        """Whether the stream has come past the token."""
        return token is None or token.done

    def wait(self, token: Task | None) -> None:
        """Run what the token needs."""
        if token is not None:
            drain(token)


class Segments:
    """The driver of a device's allocator.

    `captured` is whether the stream that allocates is being captured: only then may a segment be
    taken from the driver during a capture (in its modes that forbid unsafe calls).
    """

    def __init__(self, gpu: Gpu, index: int) -> None:
        self._gpu = gpu
        self._index = index
        self.memory: Range = gpu.memory.devices[index]
        self.captured = False

    def reserve(self, size: int) -> int | None:
        """Take a segment from the driver."""
        if not self.captured:
            self._gpu.captures.refuse_unsafe()
        return self.memory.reserve(size)

    def release(self, address: int, size: int) -> None:
        """Give a segment back, which joins the device (M3)."""
        self._gpu.join(self._index, "M3")
        self.memory.release(address, size)


class Device:
    """One virtual GPU: its default stream, its other streams by handle, and its allocator."""

    def __init__(self, gpu: Gpu, index: int, events: StreamEvents) -> None:
        self.index = index
        self.default = Stream(index, 0, blocking=True, default=True, name="default")
        self.streams: dict[int | str, Stream] = {0: self.default}
        self.next_in_pool: dict[int, int] = {}
        self.segments = Segments(gpu, index)
        self.total = self.segments.memory.size
        self.allocator = CachingAllocator(self.segments, events, self.total)

    def pool_handle(self, priority: int) -> tuple[int, int]:
        """The handle of the next stream of a pool, and its priority."""
        least, most = PRIORITIES
        priority = max(most, min(least, priority))
        turn = self.next_in_pool.get(priority, 0)
        self.next_in_pool[priority] = turn + 1
        slot = turn % POOL_STREAMS
        return 0x1000 + (self.index << 16) + (-priority << 8) + slot, priority


class Live:
    """A block that the program holds: the allocator's block, and what it is reported as."""

    __slots__ = ("allocator", "block", "number", "owner", "space")

    def __init__(
        self, block: Block, number: int, space: int, owner: Stream | None, allocator: str
    ) -> None:
        self.block = block
        self.number = number
        self.space = space
        self.owner = owner
        self.allocator = allocator
