"""A builder of traces that performs every call on the virtual machine while it writes it down."""

from __future__ import annotations

import weakref
from typing import Any

from streamsan.model import records as r
from streamsan.virtual.devices import Live
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.observer import Nobody
from streamsan.virtual.schedule import parse
from streamsan.virtual.streams import Event, Stream, Task
from tests.exact.machine import Byte, addresses
from tests.exact.values import Outcome, Seen, Values, compute, outcome
from tests.unit.builder import Bytes, Trace


class _Watcher(Nobody):
    """Hands the machine's records to the trace, with the line and thread that it is at.

    Events outlive neither: until they end they hold the observer that is to be told, which for that
    reason does not hold the trace.
    """

    def __init__(self, trace: DrivenTrace) -> None:
        super().__init__()
        self._trace, self._records = weakref.ref(trace), trace.records
        self.at = self.by = r.NONE

    def emit(self, record: r.AnyRecord) -> None:
        self._records.append(record)

    def stack(self) -> int:
        return self.at

    def thread(self) -> int:
        return self.by

    def stream(self, device: int, handle: int, *, blocking: bool, default: bool, name: str) -> int:
        trace = self._trace()
        assert trace is not None
        return trace.new_timeline(device, handle, blocking, default, name)


class DrivenTrace(Trace):
    """A trace of the virtual machine under a schedule. Blocks are those of its own allocators;
    `allocator` is that of its devices.
    """

    def __init__(self, schedule: str, allocator: str = "caching") -> None:
        self._schedule, self._allocator = schedule, allocator
        self._gpu: Gpu | None = None
        self._streams: dict[int, Stream] = {}
        self._events: dict[int, Event] = {}
        self._live: dict[int, tuple[Live, Byte]] = {}
        self._launches: dict[int, Task | None] = {}
        self._memory: Values = {}
        self._seen: Seen = {}
        super().__init__()

    # Timelines

    def new_timeline(
        self, device: int, handle: int, blocking: bool, default: bool, name: str
    ) -> int:
        """The number of a stream that the machine has just made."""
        number, self._timelines = self._timelines, self._timelines + 1
        self.records.append(r.StreamDef(number, device, handle, blocking, default, name, r.NONE))
        return number

    @property
    def gpu(self) -> Gpu:
        """The machine, with two devices."""
        if self._gpu is None:
            self._watcher = _Watcher(self)
            self._watcher.by = self.main
            self._gpu = Gpu(self._watcher, parse(self._schedule), 2, 64 << 20, self._allocator)
        return self._gpu

    def stream(self, *_: Any, **kind: Any) -> int:
        """A stream of the machine."""
        device = kind.get("device", 0)
        if kind.get("default"):
            stream: Stream = self.gpu.devices[device].default
        elif kind.get("blocking"):
            stream = self.gpu.external_stream(device, 1000 + len(self._streams))
        else:
            stream = self.gpu.new_stream(device)
        self._streams[stream.timeline] = stream
        return stream.timeline

    def _at(self, line: int | None, thread: int | None) -> int:
        """The next call's line, and the thread that makes it."""
        self._watcher.at = self.stack(line)
        self._watcher.by = self.main if thread is None else thread
        return self._watcher.at

    # Works

    def op(
        self,
        timeline: int,
        *,
        line: int | None = None,
        thread: int | None = None,
        kind: r.OpKind = r.OpKind.KERNEL,
        space: int = 0,
        **more: Any,
    ) -> int:
        """A work, noted and enqueued; the host's is done at once."""
        before = len(self.records)
        for mode in more.keys() & {"read", "write", "update"}:
            space, more[mode] = self._placed(space, more[mode])
        stack = super().op(timeline, line=line, thread=thread, kind=kind, space=space, **more)
        self._at(stack, thread)
        op = next(x for x in self.records[before:] if isinstance(x, r.Operation))
        modes: dict[Byte, int] = {}
        for access in op.accesses:
            for address in addresses(access):
                modes[space, address] = modes.get((space, address), 0) | access.mode

        def work() -> None:
            compute(stack, modes, self._memory, self._seen)

        if kind == r.OpKind.HOST:
            work()
            return stack
        stream = self._streams[timeline]
        launch = kind == r.OpKind.GRAPH_LAUNCH
        self.gpu.submit(stream, work, (self._launches.get(op.graph),) if launch else ())
        if launch:  # G4
            self._launches[op.graph] = stream.tail
        return stack

    def _placed(self, space: int, places: list[Bytes]) -> tuple[int, list[Bytes]]:
        """The accesses of a work, moved from a place of the program to where its block is."""
        for live, (at_space, at) in self._live.values():
            if at_space == space and at <= places[0][0] < at + live.block.requested:
                by = live.block.address - at
                moved = [
                    (p[0] + by, p[1] + by) if len(p) == 2 else (p[0] + by, *p[1:]) for p in places
                ]
                return live.space, moved
        return space, places

    # Order

    def _event(self, number: int) -> Event:
        return self._events.setdefault(number, self.gpu.new_event())

    def record(self, event: int, stream: int, line: int | None = None, **more: int) -> None:
        """Record an event of the machine."""
        self._at(line, more.get("thread"))
        self.gpu.record(self._event(event), self._streams[stream])

    def wait(self, event: int, stream: int, line: int | None = None, **more: int) -> None:
        """Let a stream of the machine wait."""
        self._at(line, more.get("thread"))
        self.gpu.wait(self._streams[stream], self._event(event))

    def event_sync(self, event: int, thread: int | None = None, query: bool = False) -> None:
        """Wait for an event, or ask until it is done."""
        self._at(None, thread)
        if query:
            while not self.gpu.query_event(self._event(event)):
                pass
        else:
            self.gpu.sync_event(self._event(event))

    def stream_sync(self, stream: int, thread: int | None = None, query: bool = False) -> None:
        """Wait for a stream, or ask until it is idle."""
        self._at(None, thread)
        if query:
            while not self.gpu.query_stream(self._streams[stream]):
                pass
        else:
            self.gpu.sync_stream(self._streams[stream])

    def device_sync(self, device: int = 0, thread: int | None = None, cause: str = "H2") -> None:
        """Wait for a device."""
        self._at(None, thread)
        self.gpu.join(device, cause)

    def add(self, record: r.AnyRecord) -> None:
        """Append a record; the number of an event is the machine's."""
        if isinstance(record, r.EventDestroy):
            event = self._events.pop(record.event, None)
            if event is None:
                return
            record = r.EventDestroy(event.number, record.thread)
        super().add(record)

    # Memory

    def alloc(self, start: int, end: int, stream: int | None = None, **more: Any) -> int:
        """A block of the machine's own allocators, filled by its owner."""
        space, thread = more.get("space", 0), more.get("thread")
        self._at(more.get("line"), thread)
        if space == r.HOST:
            live = self.gpu.allocate_pinned(end - start)
            by, kind = self.main if thread is None else thread, r.OpKind.HOST
        else:
            by, kind = self.default if stream is None else stream, r.OpKind.KERNEL
            owner = self._streams[by]
            live = self.gpu.allocate(owner.device, end - start, owner)
        self._live[live.number] = (live, (space, start))
        self.op(by, write=[(start, end)], thread=thread, kind=kind, space=space)
        return live.number

    def free(self, block: int, line: int | None = None, thread: int | None = None) -> int:
        """Give a block back."""
        stack = self._at(line, thread)
        self.gpu.drop(self._live.pop(block)[0])
        return stack

    def mark(self, block: int, stream: int, explicit: bool = True) -> None:
        """Tell the machine's allocator."""
        self._at(None, None)
        address = self._live[block][0].block.address
        self.gpu.record_stream(address, self._streams[stream], explicit)

    # Results

    def finish(self) -> None:
        """Run all that is left, and note it."""
        for device in (0, 1):
            self.device_sync(device)

    def outcome(self) -> Outcome:
        """What was read, and what the memory holds, address by address."""
        return outcome(self._memory, self._seen)

    def result(self) -> Outcome:
        """The same as the program sees it: its blocks, wherever they lie, and no freed memory."""
        held: Values = {byte: value for byte, value in self._memory.items() if byte[1] < 64}
        for live, (space, start) in self._live.values():
            for offset in range(live.block.requested):
                value = self._memory.get((live.space, live.block.address + offset), 0)
                held[space, start + offset] = value
        return outcome(held, self._seen)
