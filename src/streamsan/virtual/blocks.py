"""The machine's memory: blocks handed out to the program and taken back, and told of."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from streamsan.allocator.contract import Block
from streamsan.allocator.pinned import PinnedAllocator
from streamsan.model import records as r
from streamsan.virtual.devices import Device, Live
from streamsan.virtual.graph import Capture
from streamsan.virtual.monitor import Monitor
from streamsan.virtual.observer import Observer
from streamsan.virtual.streams import Stream


class Requests(threading.local):
    """Per thread: the pool that its requests of each device come from, if not the common one."""

    def __init__(self) -> None:
        self.pools: dict[int, int] = {}


class Blocks:
    """The part of a machine that hands out memory. `live` are the blocks by address."""

    observer: Observer
    monitor: Monitor
    devices: list[Device]
    pinned: PinnedAllocator

    def __init__(self) -> None:
        self.live: dict[int, Live] = {}
        self.requests = Requests()
        self._watched: list[int] = []
        self._behalf: tuple[int, int] | None = None

    def allocate(self, device: int, size: int, stream: Stream) -> Live:
        """A block of device memory, filed under `stream`. Raises allocator.OutOfMemory."""
        capture = stream.capture if isinstance(stream.capture, Capture) else None
        dev = self.devices[device]
        dev.segments.captured = capture is not None
        pool = capture.pool if capture is not None else self.requests.pools.get(device, 0)
        block = dev.allocator.allocate(size, id(stream), pool)
        graph = capture.number if capture is not None else r.NONE
        if dev.allocator.watches_uses:
            insort(self._watched, block.address)
        return self._hold(block, device, size, stream, dev.allocator.name, graph)

    def allocate_pinned(self, size: int) -> Live:
        """A block of pinned host memory."""
        block = self.pinned.allocate(size)
        return self._hold(block, r.HOST, size, None, "pinned", r.NONE)

    def _hold(
        self, block: Block, space: int, size: int, owner: Stream | None, allocator: str, graph: int
    ) -> Live:
        live = Live(block, self.observer.next_number(), space, owner, allocator)
        self.live[block.address] = live
        self.observer.emit(
            r.Alloc(
                live.number,
                space,
                block.address,
                size,
                owner.timeline if owner is not None else r.NONE,
                self.observer.thread(),
                self.observer.stack(),
                allocator,
                graph,
            )
        )
        return live

    def _release(self, live: Live, thread: int, stack: int) -> None:
        """Give a block back; what the allocator has to do for that comes before the free."""
        address = live.block.address
        self.live.pop(address, None)
        self._behalf = thread, stack
        try:
            if live.space == r.HOST:
                self.pinned.free(live.block)
            else:
                allocator = self.devices[live.space].allocator
                if allocator.watches_uses:
                    del self._watched[bisect_left(self._watched, address)]
                allocator.free(live.block)
        finally:
            self._behalf = None
        self.observer.emit(r.Free(live.number, thread, stack))

    def caller(self) -> tuple[int, int]:
        """Timeline and stack on whose behalf an allocator acts: of a free, those it came from."""
        return self._behalf or (self.observer.thread(), self.observer.stack())

    def used(self, stream: Stream, accesses: Sequence[r.Access]) -> None:
        """Tell the allocators that want to know which blocks an operation of `stream` uses."""
        if not self._watched:
            return
        for access in accesses:
            index = bisect_right(self._watched, access.address) - 1
            if index >= 0 and access.space >= 0:
                live = self.live[self._watched[index]]
                if access.address < live.block.address + live.block.size:
                    allocator = self.devices[live.space].allocator
                    allocator.record_stream(live.block, id(stream))

    def record_stream(self, address: int, stream: Stream, explicit: bool) -> None:
        """Tell the allocator that `stream` uses the live block at `address` (M2, M5)."""
        with self.monitor:
            live = self.live.get(address)
            if live is None:
                return
            self.observer.emit(
                r.RecordStream(
                    live.number,
                    stream.timeline,
                    self.observer.thread(),
                    self.observer.stack(),
                    explicit,
                )
            )
            if live.space == r.HOST:
                self.pinned.record_stream(live.block, id(stream))
            else:
                self.devices[live.space].allocator.record_stream(live.block, id(stream))

    def empty_cache(self) -> None:
        """Give cached memory back to the driver, which joins the devices it is of (M3)."""
        with self.monitor:
            for device in self.devices:
                device.allocator.empty_cache()

    def describe(self) -> None:
        """Tell a new recording of the blocks that live already."""
        with self.monitor:
            for address, live in self.live.items():
                owner = live.owner.timeline if live.owner is not None else r.NONE
                self.observer.emit(
                    r.Alloc(
                        live.number,
                        live.space,
                        address,
                        live.block.requested,
                        owner,
                        self.observer.thread(),
                        r.NONE,
                        live.allocator,
                    )
                )

    def drop(self, live: Live) -> None:
        """The last reference to a block went away, at any moment of any thread."""
        thread, stack = self.observer.thread(), self.observer.stack()
        self.monitor.later(lambda: self._release(live, thread, stack))
