"""A builder of traces that performs every call on the virtual machine while it writes it down."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from streamsan.allocator import caching
from streamsan.allocator.contract import CaptureRefused
from streamsan.model import records as r
from streamsan.virtual.devices import Live
from streamsan.virtual.executable import ExecutableGraph
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.graph import Capture
from streamsan.virtual.observer import Nobody
from streamsan.virtual.schedule import parse
from streamsan.virtual.streams import Event, Stream, Task
from tests.exact.machine import Byte
from tests.exact.programs import Action, Program, Setup
from tests.exact.values import Outcome, Seen, Values, compute, modes, name, outcome
from tests.unit.builder import Bytes, Trace, access


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

    def operation(
        self, kind: int, name: str, timeline: int, accesses: tuple[r.Access, ...], **extra: Any
    ) -> None:
        trace = self._trace()
        assert trace is not None
        trace.note(timeline, r.OpKind(kind), accesses, name=name, **extra)


SEGMENT = 512
"""Bytes of a driver's segment, one block: a quarantine looks for what is free again each time."""


def driven(
    setup: Setup, actions: Sequence[Action], schedule: str, allocator: str = "caching"
) -> DrivenTrace:
    """A program, performed by the virtual machine under a schedule, to its end."""
    with pytest.MonkeyPatch.context() as patch:
        if allocator == "quarantine":
            patch.setattr(caching, "SMALL_SEGMENT", SEGMENT)
        trace = DrivenTrace(schedule, allocator)
        Program(setup, actions, trace=trace)
        trace.finish()
    return trace


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
        self._graphs: dict[int, ExecutableGraph] = {}
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
            for device in self._gpu.devices if self._allocator == "quarantine" else ():
                vars(device.allocator)["_streams"].fill = self._fill
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

    def note(
        self, timeline: int, kind: r.OpKind, accesses: Sequence[r.Access], **more: Any
    ) -> None:
        """Append an operation that the machine tells of by itself."""
        at, by = self._watcher.at, self._watcher.by
        super().op(timeline, line=at, thread=by, kind=kind, touched=accesses, **more)

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
        more["touched"] = [self._moved(touched) for touched in more.get("touched", ())]
        stack = super().op(timeline, line=line, thread=thread, kind=kind, space=space, **more)
        self._at(stack, thread)
        op = next(x for x in self.records[before:] if isinstance(x, r.Operation))
        touched = modes(op.accesses)
        stream = self._streams.get(timeline)
        capture = stream.capture if stream is not None else None
        launch_of = capture.seed(lambda: self._watcher.at) if isinstance(capture, Capture) else 0

        def work() -> None:
            launch = capture.seeds[launch_of] if isinstance(capture, Capture) else r.NONE
            compute(name(stack, launch), touched, self._memory, self._seen)

        if stream is None:
            work()
            return stack
        if isinstance(capture, Capture):
            capture.accesses.extend(op.accesses)
        self.gpu.used(stream, op.accesses)
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

    def _moved(self, touched: r.Access) -> r.Access:
        """The same for one access."""
        place = (touched.address, touched.address + touched.run)
        space, moved = self._placed(touched.space, [place])
        return access(moved[0], touched.mode, space)

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
        where: dict[str, Any] = {}
        self._at(more.get("line"), thread)
        if space == r.HOST:
            live = self.gpu.allocate_pinned(end - start)
            by, kind = self.main if thread is None else thread, r.OpKind.HOST
        else:
            by, kind = self.default if stream is None else stream, r.OpKind.KERNEL
            owner = self._streams[by]
            live = self.gpu.allocate(owner.device, end - start, owner)
            if isinstance(owner.capture, Capture):
                where = {"graph": owner.capture.number, "captured": True}
        self._live[live.number] = (live, (space, start))
        self.op(by, write=[(start, end)], thread=thread, kind=kind, space=space, **where)
        return live.number

    def free(self, block: int, line: int | None = None, thread: int | None = None) -> int:
        """Give a block back."""
        stack = self._at(line, thread)
        live, _ = self._live.pop(block)
        self._going = live
        self.gpu.drop(live)
        return stack

    def _fill(self, stream: int, address: int, _: int) -> None:
        """What a quarantine does to the block that goes, as far as the program had asked for it."""
        space, size, stack = self._going.space, self._going.block.requested, self._watcher.at
        whole = {(space, address + at): int(r.Mode.WRITE) for at in range(size)}

        def work() -> None:
            compute(name(stack), whole, self._memory, self._seen)

        self.gpu.submit(self.gpu.numbered[stream], work)

    def empty_cache(self, thread: int | None = None) -> None:
        """Give the machine's cached memory back to its driver."""
        self._at(None, thread)
        self.gpu.empty_cache()

    # Graphs

    def begin_capture(
        self, stream: int, thread: int | None = None, pool_of: int = r.NONE
    ) -> int | None:
        """Begin a capture of the machine, if its allocator bears one."""
        self._at(None, thread)
        shared = self._graphs.get(pool_of)
        pool = shared.pool if shared is not None else self.gpu.observer.next_number()
        try:
            graph = ExecutableGraph(self.gpu, pool, self._streams[stream])
        except CaptureRefused:
            return None
        self._graphs[graph.capture.number] = graph
        return graph.capture.number

    def end_capture(self, graph: int) -> None:
        """End it."""
        self._graphs[graph].end()

    def launch(self, graph: int, stream: int, thread: int | None = None) -> int:
        """Launch a graph of the machine; the line."""
        stack = self._at(None, thread)
        self._graphs[graph].launch(self._streams[stream], "launch")
        return stack

    def destroy_graph(self, graph: int, thread: int | None = None) -> None:
        """Destroy a graph of the machine."""
        self._at(None, thread)
        self._graphs.pop(graph).destroy()

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
