"""The virtual machine: devices with streams, events and allocators, and the host's calls to them.

Every public method is one call of a host thread, takes the machine's lock, does what CUDA does,
and reports it. No framework is known here; the torch face is built on top.
"""

from __future__ import annotations

import threading
import time

from streamsan.allocator.caching import CachingAllocator
from streamsan.allocator.contract import Block
from streamsan.allocator.pinned import PinnedAllocator
from streamsan.model import records as r
from streamsan.virtual.graph import Capture, CaptureError
from streamsan.virtual.memory import Memory, Range
from streamsan.virtual.observer import Observer
from streamsan.virtual.schedule import Schedule
from streamsan.virtual.streams import Event, Stream, Task, Work, drain

POOL_STREAMS = 32
"""Streams of a device and priority; further stream objects share them, as in PyTorch's pools."""

_LEGACY, _PER_THREAD = 1, 2  # cudaStreamLegacy, cudaStreamPerThread

PINNED_BYTES = 16 << 30
"""Addresses for pinned host memory."""


class Device:
    """One virtual GPU: its default stream, its other streams by handle, and its allocator."""

    def __init__(self, index: int, memory: Range, events: StreamEvents) -> None:
        self.index = index
        self.default = Stream(index, 0, blocking=True, default=True, name="default")
        self.streams: dict[int | str, Stream] = {0: self.default}
        self.next_in_pool: dict[int, int] = {}
        self.allocator = CachingAllocator(memory, events, memory.size)


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


class ThreadState(threading.local):
    """What CUDA keeps per host thread: the current device and each device's current stream."""

    def __init__(self) -> None:
        self.device = 0
        self.current: dict[int, Stream] = {}
        self.outer: list[Stream] = []
        self.own: dict[int, Stream] = {}


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


class Gpu:
    """The machine. `memory` is the size of each device in bytes."""

    def __init__(
        self, observer: Observer, schedule: Schedule, devices: int = 1, memory: int = 16 << 30
    ) -> None:
        self.observer = observer
        self.schedule = schedule
        self.memory = Memory(devices, memory, PINNED_BYTES)
        self.numbered: dict[int, Stream] = {}
        events = StreamEvents(self)
        self.devices = [
            Device(index, self.memory.devices[index], events) for index in range(devices)
        ]
        self.pinned = PinnedAllocator(self.memory.pinned, events, PINNED_BYTES)
        self.thread = ThreadState()
        self.live: dict[int, Live] = {}
        self.monitor = observer.monitor
        for device in self.devices:
            self._define(device.default)

    def drop(self, live: Live) -> None:
        """The last reference to a block went away, at any moment of any thread."""
        thread, stack = self.observer.thread(), self.observer.stack()
        self.monitor.later(lambda: self._release(live, thread, stack))

    # -- streams ----------------------------------------------------------------------------------

    def _define(self, stream: Stream, key: int | str | None = None) -> Stream:
        stream.timeline = self.observer.stream(
            stream.device,
            stream.handle,
            blocking=stream.blocking,
            default=stream.default,
            name=stream.name,
        )
        if not stream.default and not stream.name:
            stream.name = self.observer.birth_name()
        self.numbered[id(stream)] = stream
        self.devices[stream.device].streams[stream.handle if key is None else key] = stream
        return stream

    def streams(self, device: int | None = None) -> list[Stream]:
        """All streams, or those of one device."""
        chosen = self.devices if device is None else [self.devices[device]]
        return [stream for dev in chosen for stream in dev.streams.values()]

    def new_stream(self, device: int, priority: int = 0) -> Stream:
        """The next stream of a pool; after 32 the first comes round again (as in c10's pools)."""
        with self.monitor:
            dev = self.devices[device]
            turn = dev.next_in_pool.get(priority, 0)
            dev.next_in_pool[priority] = turn + 1
            slot = turn % POOL_STREAMS
            handle = 0x1000 + (device << 16) + ((-priority & 0xF) << 8) + slot
            known = dev.streams.get(handle)
            return known or self._define(Stream(device, handle, priority=priority))

    def external_stream(self, device: int, handle: int) -> Stream:
        """The stream of a native handle; one not seen before is a blocking stream (rule D1).

        Handles 0 and 1 are the legacy stream, 2 the calling thread's own (rule D2).
        """
        with self.monitor:
            if handle == _PER_THREAD:
                return self._per_thread(device)
            known = self.devices[device].streams.get(0 if handle == _LEGACY else handle)
            return known or self._define(Stream(device, handle, blocking=True))

    def _per_thread(self, device: int) -> Stream:
        own = self.thread.own.get(device)
        if own is None:
            own = Stream(device, _PER_THREAD, blocking=True, name="per-thread default")
            self.thread.own[device] = self._define(own, f"{_PER_THREAD} {threading.get_ident()}")
        return own

    def current_stream(self, device: int) -> Stream:
        """The calling thread's current stream of `device`."""
        return self.thread.current.get(device) or self.devices[device].default

    # -- submission -------------------------------------------------------------------------------

    def submit(
        self, stream: Stream, work: Work | None, depends: tuple[Task | None, ...] = ()
    ) -> None:
        """Enqueue work on a stream, or run it at once where the schedule says so."""
        if stream.capture is not None:
            capture = stream.capture
            assert isinstance(capture, Capture)
            capture.add(stream, work)
        elif self.schedule.immediate:
            if work is not None:
                work()
        else:
            stream.push(work, (*depends, *self._legacy(stream)))
            self.schedule.after_submit(self.streams())

    def _legacy(self, stream: Stream) -> list[Task | None]:
        """Rule D1: the legacy default stream and the blocking streams wait for one another."""
        if not stream.blocking:
            return []
        if stream.default:
            return [other.tail for other in self.streams(stream.device) if other.blocking]
        return [self.devices[stream.device].default.tail]

    @property
    def now(self) -> bool:
        """Whether work runs as it is submitted."""
        return self.schedule.immediate

    # -- events (rules E1 to E5) ------------------------------------------------------------------

    def record(self, event: Event, stream: Stream) -> None:
        """Make `event` stand for all work of `stream` so far."""
        with self.monitor:
            event.recorded = True
            event.stream = stream
            capture = stream.capture
            self.observer.emit(
                r.EventRecord(
                    event.number,
                    stream.timeline,
                    self.observer.thread(),
                    self.observer.stack(),
                    capture.number if isinstance(capture, Capture) else r.NONE,
                )
            )
            if isinstance(capture, Capture):
                capture.record(event, stream)
                return
            event.task = None
            if self.now:
                event.time = time.perf_counter()
            else:
                self.submit(stream, lambda: setattr(event, "time", time.perf_counter()))
                event.task = stream.tail or Task(stream, None, ())
                event.task.done = stream.tail is None

    def wait(self, stream: Stream, event: Event) -> None:
        """Later work of `stream` runs after the latest record of `event`."""
        with self.monitor:
            joined = self._join_capture(stream, event)
            self.observer.emit(
                r.EventWait(
                    event.number,
                    stream.timeline,
                    self.observer.thread(),
                    self.observer.stack(),
                    joined.number if joined is not None else r.NONE,
                )
            )
            if joined is None and not event.done:
                self.submit(stream, None, (event.task,))

    def _join_capture(self, stream: Stream, event: Event) -> Capture | None:
        """A wait for a captured event draws its stream into the capture (rule G1)."""
        source = event.stream
        capture = source.capture if source is not None else None
        if isinstance(capture, Capture) and event.number in capture.events:
            capture.wait(stream, event)
        own = stream.capture
        if isinstance(own, Capture) and event.recorded and event.number not in own.events:
            own.invalidate()
            raise CaptureError("dependency created on uncaptured work in another stream")
        return own if isinstance(own, Capture) else None

    def sync_event(self, event: Event) -> None:
        """The calling thread waits for the latest record of `event` (E3)."""
        self.refuse_capture()
        with self.monitor:
            self.observer.emit(
                r.EventSync(event.number, self.observer.thread(), self.observer.stack())
            )
            if event.task is not None:
                drain(event.task)

    def query_event(self, event: Event) -> bool:
        """Whether the latest record has been reached; a query lets the device get on (E4)."""
        with self.monitor:
            done = event.done
            if done:
                self.observer.emit(
                    r.EventSync(event.number, self.observer.thread(), self.observer.stack(), True)
                )
            elif event.task is not None:
                self._one_step(event.task)
            return done

    def _one_step(self, task: Task) -> None:
        """Run one task on the way to `task`, so that a loop of queries comes to its end."""
        while not task.done:
            head = task.stream.queue[0]
            waiting = next((dep for dep in head.depends if not dep.done), None)
            if waiting is None:
                task.stream.step()
                return
            task = waiting

    # -- synchronisation (rules H1, H2) -----------------------------------------------------------

    def finish(self, stream: Stream) -> None:
        """Run all work of a stream, without a record of it."""
        if stream.tail is not None:
            drain(stream.tail)

    def sync_stream(self, stream: Stream) -> None:
        """The calling thread waits for a stream."""
        self.refuse_capture()
        with self.monitor:
            self.observer.emit(
                r.StreamSync(stream.timeline, self.observer.thread(), self.observer.stack())
            )
            self.finish(stream)

    def query_stream(self, stream: Stream) -> bool:
        """Whether a stream is idle; a query lets the device get on (E4)."""
        with self.monitor:
            if stream.idle:
                self.observer.emit(
                    r.StreamSync(
                        stream.timeline, self.observer.thread(), self.observer.stack(), True
                    )
                )
                return True
            if stream.tail is not None:
                self._one_step(stream.tail)
            return False

    def sync_device(self, device: int, cause: str = "H2") -> None:
        """The calling thread waits for all streams of a device."""
        self.refuse_capture()
        with self.monitor:
            self.observer.emit(
                r.DeviceSync(device, self.observer.thread(), self.observer.stack(), cause)
            )
            for stream in self.streams(device):
                self.finish(stream)

    def refuse_capture(self) -> None:
        """Raise where a stream of the calling thread is being captured: nothing may wait then."""
        for stream in self.thread.current.values():
            capture = stream.capture
            if isinstance(capture, Capture):
                capture.invalidate()
                raise CaptureError("operation not permitted when stream is capturing")

    # -- memory -----------------------------------------------------------------------------------

    def allocate(self, device: int, size: int, stream: Stream) -> Live:
        """A block of device memory, filed under `stream`. Raises allocator.OutOfMemory."""
        capture = stream.capture
        pool = capture.pool if isinstance(capture, Capture) else 0
        block = self.devices[device].allocator.allocate(size, id(stream), pool)
        graph = capture.number if isinstance(capture, Capture) else r.NONE
        return self._hold(block, device, size, stream, "caching", graph)

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
        self.live.pop(live.block.address, None)
        self.observer.emit(r.Free(live.number, thread, stack))
        if live.space == r.HOST:
            self.pinned.free(live.block)
        else:
            self.devices[live.space].allocator.free(live.block)

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
        """Give cached memory back to the driver, which joins the devices (M3)."""
        with self.monitor:
            for device in self.devices:
                if device.allocator.stats().reserved_bytes.current:
                    self.sync_device(device.index, "M3")
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

    def new_event(self) -> Event:
        """An event never recorded."""
        return Event(self.observer.next_number())
