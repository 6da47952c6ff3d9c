"""One virtual GPU: its streams, its allocator, and what its driver does for that."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streamsan.allocator import make_allocator
from streamsan.allocator.contract import Block
from streamsan.model.records import EventDestroy, EventRecord, EventWait
from streamsan.virtual.memory import POISON, Range
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


class DeviceStreams(StreamEvents):
    """The streams of one device, for its allocator."""

    def __init__(self, gpu: Gpu, index: int) -> None:
        super().__init__(gpu)
        self._index = index

    def all(self) -> list[int]:
        """The streams that have work left."""
        return [id(stream) for stream in self._gpu.streams(self._index) if not stream.idle]

    def order(self, stream: int, token: Task | None) -> None:
        """Later work of a stream runs after the token. A driver's own order is not reported."""
        if token is not None and not token.done:
            self._gpu.submit(self._gpu.numbered[stream], None, (token,))

    def join(self) -> None:
        """Run all work of the device: the thread that frees waits for it (rule M6)."""
        self._gpu.join(self._index, "M6")

    def fill(self, stream: int, address: int, size: int) -> None:
        """Enqueue a fill with the poison that fresh memory has too."""

        def work() -> None:
            ctypes.memset(address, POISON, size)

        self._gpu.submit(self._gpu.numbered[stream], work)


class Point:
    """A reported event that an allocator recorded: its number, and the task it stands for."""

    __slots__ = ("_gpu", "_thread", "number", "task")

    def __init__(self, gpu: Gpu, stream: Stream) -> None:
        self._gpu = gpu
        self._thread, stack = gpu.caller()
        self.number = gpu.observer.next_number()
        self.task = stream.tail
        gpu.observer.emit(EventRecord(self.number, stream.timeline, self._thread, stack))

    def __del__(self) -> None:
        with suppress(Exception):  # at interpreter shutdown parts of us may be gone
            record = EventDestroy(self.number, self._thread)
            emit = self._gpu.observer.emit
            self._gpu.monitor.later(lambda: emit(record))


class ReportedStreams(DeviceStreams):
    """The same where the allocator records and awaits events as a program would (rule M6)."""

    def record(self, stream: int) -> Any:
        """Record an event."""
        return Point(self._gpu, self._gpu.numbered[stream])

    def done(self, token: Any) -> bool:
        """Whether the stream has come past the event."""
        return super().done(token.task)

    def wait(self, token: Any) -> None:
        """Run what the event needs."""
        super().wait(token.task)

    def order(self, stream: int, token: Any) -> None:
        """Let a stream wait for the event, done or not."""
        thread, stack = self._gpu.caller()
        timeline = self._gpu.numbered[stream].timeline
        self._gpu.observer.emit(EventWait(token.number, timeline, thread, stack))
        super().order(stream, token.task)


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

    def __init__(self, gpu: Gpu, index: int, allocator: str) -> None:
        self.index = index
        self.default = Stream(index, 0, blocking=True, default=True, name="default")
        self.streams: dict[int | str, Stream] = {0: self.default}
        self.next_in_pool: dict[int, int] = {}
        self.segments = Segments(gpu, index)
        self.total = self.segments.memory.size
        kind = ReportedStreams if allocator == "bfc:event" else DeviceStreams
        streams = kind(gpu, index)
        self.allocator = make_allocator(allocator, self.segments, streams, self.total)

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
