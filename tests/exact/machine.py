"""A machine that a recorded program runs on: host threads and streams, each a list of steps.

Built from the records alone, by the rules of ``docs/rules.md``; nothing here is shared with the
checker but the record types. What a verdict speaks of is fixed as it was submitted in the run: the
order of each stream's queue (S1), the version that a wait takes (E2), what a synchronisation covers
(E3, H1, H2). Everything else is left to the execution: when a thread goes on, and when the device
takes the next entry of a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from streamsan.model import records as r

Point = tuple[int, int]
"""An agent, and how many of its steps have been taken there."""

Byte = tuple[int, int]
"""Address space and address."""


class Step(NamedTuple):
    """What an agent does next: it may, once all points of `needs` have been reached."""

    needs: tuple[Point, ...]
    work: int | None


class Touch(NamedTuple):
    """How a work touches a byte, and of which of the byte's tenures; `sure` leaves out guesses."""

    mode: int
    tenure: int
    sure: int


class Work(NamedTuple):
    """An operation: its agent, its stack (which names it), and all bytes that it touches.

    `block` holds the block that each byte belonged to, `nodes` what a launched graph captured.
    """

    agent: int
    stack: int
    touches: dict[Byte, Touch]
    block: dict[Byte, int]
    nodes: tuple[r.Operation, ...] = ()


class Block:
    """A block while it lives: its record, the streams that the allocator was told of, and the
    threads that asked for it or for work on it.
    """

    def __init__(self, record: r.Alloc) -> None:
        self.record = record
        self.graph = record.graph
        self.marks: set[int] = set()
        self.threads = {record.thread}
        self.bytes = [
            (record.space, at) for at in range(record.address, record.address + record.size)
        ]
        self.stream_ordered = record.allocator == "stream-ordered"
        self.freed_in_order = self.stream_ordered or record.allocator == "quarantine"
        arena, _, policy = record.allocator.partition(":")
        self.policy = policy if arena == "bfc" else ""


class Tenure:
    """One ownership of a byte. `over` is where the memory may change hands (None: never told).

    Where the free is work of the owner's stream, order alone decides: nothing of this tenure is
    compared with what comes after (M4). Whoever still uses the bytes then uses nobody's, a tenure
    of its own until they are handed out: after `released`, the free, or `again`, all that the
    device had to do by then. `frontier` is what streams other than the owner come after (M6).
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self.over: tuple[Point, ...] | None = ()
        self.released: Point | None = None
        self.again: tuple[Point, ...] = ()
        self.owner = r.NONE
        self.frontier: tuple[Point, ...] = ()


class Machine:
    """Agents and their steps. `works` are numbered in order of submission.

    An allocator that finds a block's bytes still in use hands out others. With `reuse`, a block is
    handed out only when it can have the bytes that it had in the run.

    G1: captured work executes nothing, and is left out. With a `graph` the machine is the capture
    of it and nothing else: its streams run free of host threads, and no memory changes hands.
    """

    def __init__(
        self, records: Sequence[r.AnyRecord], reuse: bool = False, graph: int = r.NONE
    ) -> None:
        self._reuse, self._graph = reuse, graph
        self.agents: dict[int, int] = {}
        self.steps: list[list[Step]] = []
        self.works: list[Work] = []
        self.tenures: dict[Byte, list[Tenure]] = {}
        self.blocks: dict[int, Block] = {}
        self._streams: dict[int, r.StreamDef] = {}
        self._events: dict[int, Point] = {}
        self._released: dict[int, list[Point]] = {}
        self._launches: dict[int, Point] = {}
        self._nodes: dict[int, list[r.Operation]] = {}
        for record in records:
            handler: Callable[[Any], None] | None = getattr(
                self, "_" + type(record).__name__.lower(), None
            )
            if handler is not None and captured_by(record) == graph:
                handler(record)
            elif isinstance(record, r.Operation):
                self._nodes.setdefault(record.graph, []).append(record)

    # Agents

    def _agent(self, timeline: int) -> int:
        if timeline not in self.agents:
            self.agents[timeline] = len(self.steps)
            self.steps.append([])
        return self.agents[timeline]

    def is_stream(self, timeline: int) -> bool:
        """Whether a timeline is a stream, not a thread."""
        return timeline in self._streams

    def here(self, timeline: int) -> Point:
        """The point after all steps that the timeline has so far."""
        agent = self._agent(timeline)
        return agent, len(self.steps[agent])

    def _perform(self, thread: int, needs: list[Point], work: int | None = None) -> Point:
        """S2: a thread takes its steps in order."""
        self.steps[self._agent(thread)].append(Step(tuple(needs), work))
        return self.here(thread)

    def _enqueue(
        self, stream: int, thread: int, needs: list[Point], work: int | None = None
    ) -> Point:
        """S1, S3: an entry of the stream's queue, there once the thread has put it in."""
        put = [self._perform(thread, []), *self._peers(stream)] if self._graph == r.NONE else []
        entry = Step((*put, *needs), work)
        self.steps[self._agent(stream)].append(entry)
        return self.here(stream)

    def _peers(self, stream: int) -> list[Point]:
        """D1: what the legacy default stream, or a blocking stream, waits for by itself."""
        mine = self._streams[stream]
        if not (mine.default or mine.blocking):
            return []
        return [
            self.here(other.timeline)
            for other in self._streams.values()
            if other.device == mine.device and other.default != mine.default
            if other.default or other.blocking
        ]

    def _threaddef(self, x: r.ThreadDef) -> None:
        self._perform(x.timeline, [] if x.parent == r.NONE else [self.here(x.parent)])

    def _streamdef(self, x: r.StreamDef) -> None:
        self._streams[x.timeline] = x
        self._agent(x.timeline)

    # Operations

    def _operation(self, x: r.Operation) -> None:
        launch = x.kind == r.OpKind.GRAPH_LAUNCH
        nodes = tuple(self._nodes.get(x.graph, ())) if launch else ()
        work = self._work(x.timeline, x.stack, x.accesses, nodes)
        for block in self.works[work].block.values():
            if block in self.blocks:
                self.blocks[block].threads.add(x.thread)
        if x.kind == r.OpKind.HOST and self._graph == r.NONE:
            self._perform(x.timeline, [], work)
        elif launch:  # G4
            last = self._launches.get(x.graph)
            needs = [last] if last is not None else []
            self._launches[x.graph] = self._enqueue(x.timeline, x.thread, needs, work)
        else:
            self._enqueue(x.timeline, x.thread, [], work)

    def _work(
        self,
        timeline: int,
        stack: int,
        accesses: tuple[r.Access, ...],
        nodes: tuple[r.Operation, ...] = (),
    ) -> int:
        touches: dict[Byte, Touch] = {}
        block: dict[Byte, int] = {}
        for access in accesses:
            for address in addresses(access):
                byte = (access.space, address)
                tenures = self._tenures(byte)
                tenure = len(tenures) - 1
                mode, _, sure = touches.get(byte, Touch(0, tenure, 0))
                if access.confidence > r.Confidence.POSSIBLE:
                    sure |= access.mode
                touches[byte] = Touch(mode | access.mode, tenure, sure)
                block[byte] = tenures[-1].block
        self.works.append(Work(self._agent(timeline), stack, touches, block, nodes))
        return len(self.works) - 1

    def _tenures(self, byte: Byte) -> list[Tenure]:
        return self.tenures.setdefault(byte, [Tenure(r.NONE)])

    # Order

    def _eventrecord(self, x: r.EventRecord) -> None:
        self._events[x.event] = self._enqueue(x.stream, x.thread, [])

    def _eventwait(self, x: r.EventWait) -> None:
        version = self._events.get(x.event)
        self._enqueue(x.stream, x.thread, [version] if version else [])

    def _eventsync(self, x: r.EventSync) -> None:
        version = self._events.get(x.event)
        self._perform(x.thread, [version] if version else [])

    def _eventdestroy(self, x: r.EventDestroy) -> None:
        self._events.pop(x.event, None)

    def _streamsync(self, x: r.StreamSync) -> None:
        """H1; a synchronisation of the legacy stream is an operation of it, where D1 matters."""
        if self._streams[x.stream].default and self._peers(x.stream):
            self._enqueue(x.stream, x.thread, [])
        self._perform(x.thread, [self.here(x.stream)])

    def _devicesync(self, x: r.DeviceSync) -> None:
        self._perform(x.thread, list(self._device(x.device)))

    def _hostrelease(self, x: r.HostRelease) -> None:
        self._released.setdefault(x.object, []).append(self._perform(x.thread, []))

    def _hostacquire(self, x: r.HostAcquire) -> None:
        self._perform(x.thread, list(self._released.get(x.object, [])))

    def _graphdestroy(self, x: r.GraphDestroy) -> None:
        """G4, G3: its number may come again, and blocks of its pool are ordinary from now on."""
        self._launches.pop(x.graph, None)
        self._nodes.pop(x.graph, None)
        for block in self.blocks.values():
            if block.graph == x.graph:
                block.graph = r.NONE

    # Memory

    def _alloc(self, x: r.Alloc) -> None:
        block = self.blocks[x.block] = Block(x)
        former = {id(t): t for byte in block.bytes for t in self._tenures(byte)[-1:]}
        for tenure in former.values():
            if tenure.over is not None and tenure.owner != x.stream:
                tenure.over += tenure.frontier
        for byte in block.bytes:
            self.tenures[byte].append(Tenure(x.block))
        if block.stream_ordered:  # M4
            needs = [t.released for t in former.values() if t.released is not None]
            self._enqueue(x.stream, x.thread, needs, self._whole(block, x.stream, x.stack))
        else:  # M1, M3: no order
            points = {point for t in former.values() for point in (*(t.over or ()), *t.again)}
            self._perform(x.thread, sorted(points) if self._reuse else [])

    def _whole(self, block: Block, stream: int, stack: int) -> int:
        record = block.record
        access = r.Access(record.space, record.address, record.size, (), (), r.Mode.WRITE, "")
        return self._work(stream, stack, (access,))

    def _recordstream(self, x: r.RecordStream) -> None:
        if x.block in self.blocks:
            self.blocks[x.block].marks.add(x.stream)

    def _free(self, x: r.Free) -> None:
        block = self.blocks.pop(x.block, None)
        if block is None or block.graph != r.NONE:  # G3: the free means nothing
            return
        marked = [self.here(stream) for stream in sorted(block.marks)]
        # T1: each thread has given its reference up by now.
        held = [self.here(thread) for thread in sorted(block.threads - {x.thread})]
        if block.freed_in_order:  # M4, or a quarantine's fill
            stream, whole = block.record.stream, self._whole(block, block.record.stream, x.stack)
            point = self._enqueue(stream, x.thread, [*held, *marked], whole)
            for byte in block.bytes:
                self.tenures[byte][-1].over = None
                nobodys = Tenure(x.block)
                if block.stream_ordered:
                    nobodys.released = point
                else:
                    nobodys.again = self._device(block.record.space)
                self.tenures[byte].append(nobodys)
        else:
            over = (self._perform(x.thread, []), *held)
            self._hand_back(block, over, tuple(marked))

    def _device(self, device: int) -> tuple[Point, ...]:
        """All that the streams of a device have been given so far."""
        own = [s.timeline for s in self._streams.values() if s.device == device]
        return tuple(self.here(stream) for stream in own)

    def _hand_back(self, block: Block, over: tuple[Point, ...], marked: tuple[Point, ...]) -> None:
        """M2, M5, M6: an arena knows no marks; with `frontier`, nobody owns a marked block."""
        frontier: tuple[Point, ...] = ()
        if block.policy == "frontier":
            frontier = self._device(block.record.space)
        for byte in block.bytes:
            tenure = self.tenures[byte][-1]
            tenure.over = over if block.policy else over + marked
            tenure.owner = r.NONE if marked else block.record.stream
            tenure.frontier = frontier


def captured_by(record: r.AnyRecord) -> int:
    """The graph that captures a record (G1), or NONE."""
    if isinstance(record, r.Operation):
        return record.graph if record.captured else r.NONE
    if isinstance(record, r.EventRecord | r.EventWait):
        return record.captured
    return r.NONE


def captures(records: Sequence[r.AnyRecord]) -> Iterator[Machine]:
    """The captures of a run, each on its own machine; a destroyed graph's number may come again."""
    open_ones: dict[int, list[r.AnyRecord]] = {}
    for record in records:
        if isinstance(record, r.GraphDestroy) and record.graph in open_ones:
            yield Machine(open_ones.pop(record.graph), graph=record.graph)
        elif captured_by(record) != r.NONE:
            open_ones.setdefault(captured_by(record), []).append(record)
    for graph, captured in open_ones.items():
        yield Machine(captured, graph=graph)


def addresses(access: r.Access) -> set[int]:
    """The address of every byte of an access, one by one."""
    lows = {access.address}
    for size, stride in zip(access.sizes, access.strides):
        lows = {low + index * stride for low in lows for index in range(size)}
    return {byte for low in lows for byte in range(low, low + access.run)}
