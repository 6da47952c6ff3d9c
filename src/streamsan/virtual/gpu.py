"""The virtual machine: devices with streams, events and allocators, and the host's calls to them.

Every public method is one call of a host thread, takes the machine's lock, does what CUDA does,
and reports it. No framework is known here; the torch face is built on top.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from streamsan.allocator.pinned import PinnedAllocator
from streamsan.model import records as r
from streamsan.virtual.blocks import Blocks
from streamsan.virtual.collectives import Transfers
from streamsan.virtual.devices import Device, StreamEvents
from streamsan.virtual.graph import Capture, Captures
from streamsan.virtual.memory import Memory
from streamsan.virtual.observer import Observer, tell_destroyed
from streamsan.virtual.schedule import Schedule
from streamsan.virtual.streams import Event, Outside, Stream, Task, Work, drain

_LEGACY, _PER_THREAD = 1, 2  # cudaStreamLegacy, cudaStreamPerThread
_OWN = 1 << 40  # handles above this one are of no pool

PINNED_BYTES = 16 << 30
"""Addresses for pinned host memory."""


class ThreadState(threading.local):
    """What CUDA keeps per host thread: the current device and each device's current stream."""

    def __init__(self) -> None:
        self.device = 0
        self.current: dict[int, Stream] = {}
        self.outer: list[Stream] = []
        self.own: dict[int, Stream] = {}


class Gpu(Blocks):
    """The machine. `memory` is the size of each device in bytes, `allocator` one of
    `streamsan.allocator.NAMES`.
    """

    def __init__(
        self,
        observer: Observer,
        schedule: Schedule,
        devices: int = 1,
        memory: int = 16 << 30,
        allocator: str = "caching",
    ) -> None:
        super().__init__()
        self.observer = observer
        self.schedule = schedule
        self.memory = Memory(devices, memory, PINNED_BYTES)
        self.numbered: dict[int, Stream] = {}
        self.captures = Captures()
        self.devices = [Device(self, index, allocator) for index in range(devices)]
        self.pinned = PinnedAllocator(self.memory.pinned, StreamEvents(self), PINNED_BYTES)
        self.thread = ThreadState()
        self.faults: list[Exception] = []
        self.monitor = observer.monitor
        self.transfers = Transfers(self)
        self.before_wait: Callable[[], None] = lambda: None
        """Called where the host is about to wait for a stream."""
        for device in self.devices:
            self._define(device.default)

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
            handle, priority = self.devices[device].pool_handle(priority)
            known = self.devices[device].streams.get(handle)
            return known or self._define(Stream(device, handle, priority=priority))

    def own_stream(self, device: int, name: str) -> Stream:
        """A stream outside of the pools, such as that of a communicator (rule N1)."""
        with self.monitor:
            handle = _OWN + self.observer.next_number()
            return self._define(Stream(device, handle, name=name))

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
        """Enqueue work on a stream, or run it at once where the schedule says so.

        Raises where a capture cannot bear it (`Captures.refuse_legacy`).
        """
        if isinstance(stream.capture, Capture):
            stream.capture.add(stream, work)
            return
        if stream.default and self.captures.active:
            self.captures.refuse_legacy(stream.device)
        if self.runs_at_once(stream) and all(task is None or task.done for task in depends):
            if work is not None:
                work()
        else:
            stream.push(self._guarded(work), (*depends, *self._legacy(stream)))
            self.schedule.go_on(self.streams())

    def submit_exchange(
        self, stream: Stream, begin: Work, outside: Outside, end: Work, after: Task | None
    ) -> Task:
        """Enqueue work with other processes: `begin`, what happens `outside`, and `end`.

        It begins after the task `after` as well; the task of its own beginning is returned.
        """

        def close() -> None:
            try:
                end()
            finally:
                self.transfers.ended()

        started = stream.push(self._guarded(begin), (after, *self._legacy(stream)))
        stream.push(self._guarded(close), (), outside)
        self.transfers.add(started)
        self.schedule.go_on(self.streams())
        return started

    def _guarded(self, work: Work | None) -> Work | None:
        """Work whose failure is told where the host next waits, as that of a kernel is."""
        if work is None:
            return None

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self.faults.append(error)

        return guarded

    def _tell_fault(self) -> None:
        """Raise for the first failure that was not told yet."""
        if self.faults:
            fault = self.faults.pop(0)
            raise self.captures.error(f"an operation failed on the device: {fault}") from fault

    def _legacy(self, stream: Stream) -> list[Task | None]:
        """Rule D1: the legacy default stream and the blocking streams wait for one another."""
        if not stream.blocking:
            return []
        if stream.default:
            return [other.tail for other in self.streams(stream.device) if other.blocking]
        return [self.devices[stream.device].default.tail]

    def _settled(self, stream: Stream) -> bool:
        """Whether nothing is left that an operation of the stream would wait for by rule D1."""
        return all(task is None or task.done for task in self._legacy(stream))

    def runs_at_once(self, stream: Stream) -> bool:
        """Whether work runs as it is submitted to `stream`."""
        if not self.schedule.immediate:
            return False
        return not self.transfers.outstanding or self._idle(stream)

    def _idle(self, stream: Stream) -> bool:
        """Whether nothing on the stream, or before it by rule D1, waits for another process."""
        self.schedule.go_on(self.streams())
        return stream.idle and self._settled(stream)

    # -- events (rules E1 to E5) ------------------------------------------------------------------

    def record(self, event: Event, stream: Stream) -> None:
        """Make `event` stand for all work of `stream` so far."""
        with self.monitor:
            capture = stream.capture if isinstance(stream.capture, Capture) else None
            event.recorded = True
            event.stream = stream
            event.capture = capture
            event.version += 1
            self.observer.emit(
                r.EventRecord(
                    event.number,
                    stream.timeline,
                    self.observer.thread(),
                    self.observer.stack(),
                    capture.number if capture is not None else r.NONE,
                )
            )
            if capture is not None:
                capture.record(event, stream)
                return
            event.task = None
            if self.runs_at_once(stream):
                event.time = time.perf_counter()
            else:
                self.submit(stream, event.reached(event.version))
                event.task = stream.tail

    def wait(self, stream: Stream, event: Event) -> None:
        """Later work of `stream` runs after the latest record of `event`."""
        with self.monitor:
            joined = self.captures.join(stream, event)
            self.observer.emit(
                r.EventWait(
                    event.number,
                    stream.timeline,
                    self.observer.thread(),
                    self.observer.stack(),
                    joined.number if joined is not None else r.NONE,
                )
            )
            if joined is None and not (event.done and self._settled(stream)):
                self.submit(stream, None, (event.task,))

    def sync_event(self, event: Event) -> None:
        """The calling thread waits for the latest record of `event` (E3)."""
        with self.monitor:
            self.captures.refuse_event(event)
            self.observer.emit(
                r.EventSync(event.number, self.observer.thread(), self.observer.stack())
            )
            if event.task is not None:
                drain(event.task)
                self.schedule.go_on(self.streams())
            self._tell_fault()

    def query_event(self, event: Event) -> bool:
        """Whether the latest record has been reached; a query lets the device get on (E4)."""
        with self.monitor:
            self.captures.refuse_event(event)
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
        """Run all work that comes before the next of a stream, without a record of it."""
        for task in (stream.tail, *self._legacy(stream)):
            if task is not None:
                drain(task)

    def _awaited(self, stream: Stream) -> list[Task]:
        """What a wait of the host for `stream` covers and has not run.

        For the legacy default stream such a wait is an operation of it (rule D1).
        """
        tasks = [stream.tail, *(self._legacy(stream) if stream.default else [])]
        return [task for task in tasks if task is not None]

    def sync_stream(self, stream: Stream) -> None:
        """The calling thread waits for a stream."""
        self.before_wait()
        with self.monitor:
            self.captures.refuse_stream(stream)
            self.observer.emit(
                r.StreamSync(stream.timeline, self.observer.thread(), self.observer.stack())
            )
            awaited = self._awaited(stream)
            for task in awaited:
                drain(task)
            if awaited:
                self.schedule.go_on(self.streams())
            self._tell_fault()

    def query_stream(self, stream: Stream) -> bool:
        """Whether a stream is idle; a query lets the device get on (E4)."""
        with self.monitor:
            self.captures.refuse_stream(stream)
            awaited = self._awaited(stream)
            if not awaited:
                self.observer.emit(
                    r.StreamSync(
                        stream.timeline, self.observer.thread(), self.observer.stack(), True
                    )
                )
                return True
            self._one_step(awaited[0])
            return False

    def sync_device(self, device: int) -> None:
        """The calling thread waits for all streams of a device."""
        with self.monitor:
            self.captures.refuse_device(device)
            self.join(device, "H2")
            self._tell_fault()

    def join(self, device: int, cause: str) -> None:
        """What a rule (`cause`) makes the calling thread do: wait for all streams of a device."""
        self.observer.emit(r.DeviceSync(device, *self.caller(), cause))
        for stream in self.streams(device):
            if stream.tail is not None:
                drain(stream.tail)

    def refuse_capture(self) -> None:
        """Raise where a call that makes the calling thread wait is forbidden by a capture."""
        with self.monitor:
            for stream in self.thread.current.values():
                self.captures.refuse_stream(stream)
            self.captures.refuse_unsafe()

    def new_event(self) -> Event:
        """An event never recorded."""
        event = Event(self.observer.next_number())
        weakref.finalize(event, tell_destroyed, self.observer, event.number).atexit = False
        return event
