"""The checker: takes a run's records in order and holds the accesses against one another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streamsan.detect import _facts
from streamsan.detect._division import Division
from streamsan.detect._findings import Mistake, Race, Telling
from streamsan.detect._kinds import kind_of
from streamsan.detect._latent import dismiss
from streamsan.detect._lifetimes import Lifetimes
from streamsan.detect._losses import Losses
from streamsan.detect._memory import Memory
from streamsan.detect._names import Line, Names
from streamsan.detect._report import Figures
from streamsan.detect._results import Results
from streamsan.detect._segments import Use
from streamsan.model import records as r
from streamsan.model.findings import Report
from streamsan.order import Clock, Order

_HOST = int(r.OpKind.HOST)
_LAUNCH = int(r.OpKind.GRAPH_LAUNCH)
_POINTS = 1 << 32
"""More than an operation has accesses: points between two operations count from here on."""


class _World:
    """An order and the memory that goes with it: the run's own, or that of one capture (G1)."""

    __slots__ = ("captured", "memory", "order")

    def __init__(self, losses: Losses, captured: bool) -> None:
        self.order = Order(capture=captured)
        self.memory = Memory(self.order, losses)
        self.captured = captured


class Checker:
    """Finds the races of a run.

    Hand each record to `feed` in order of submission, from one thread at a time; ask `report` for
    the findings so far at any time. A live run and its trace give the same report. `limit` bounds
    the uses remembered for one stretch of bytes and timeline; a cut is told as a blind spot.

    With a `division` it looks after one share of the run's memory: set `at` to the number of each
    record before it is fed, and put the `results` of all shares together.
    """

    def __init__(self, limit: int = 256, division: Division | None = None) -> None:
        """A checker of a run that has not begun."""
        self._at = self._points = 0
        self._division = division
        self._names = Names()
        self._losses = Losses(limit)
        self._run = _World(self._losses, captured=False)
        self._captures: dict[int, _World] = {}
        self._lifetimes = Lifetimes(
            self._run.order,
            self._names,
            self._run.memory.shadow,
            touch=self._touch_point,
            mistake=self._mistake,
            division=division,
        )
        self._races: dict[tuple[Line, Line], Race] = {}
        self._certain = False
        self._moved: set[tuple[Line, Line]] = set()
        self._mistakes: dict[tuple[str, str, Line], Mistake] = {}
        self._figures = Figures()
        self._handlers = self._make_handlers()

    def feed(self, record: r.AnyRecord) -> None:
        """Take the next record of the run."""
        self._handlers[type(record)](record)

    def feed_all(self, records: Iterable[r.AnyRecord]) -> None:
        """Take the next records of the run; an iterator that one of them stops is at the next."""
        handlers = self._handlers
        for record in records:
            handlers[type(record)](record)

    @property
    def has_races(self) -> bool:
        """Whether a race was found so far, possible ones left out; costs nothing."""
        return self._certain

    @property
    def sources(self) -> dict[Line, str]:
        """The text of each line of the user's program so far."""
        return self._names.sources

    def report(self) -> Report:
        """The findings so far; `summary.complete` tells whether the run has ended."""
        return self.results().report()

    def results(self) -> Results:
        """The findings so far, to be put together with those of other shares."""
        self._losses.merged = self._run.order.merged
        worlds = (self._run, *self._captures.values())
        return Results(
            self._names,
            self._figures,
            self._losses,
            self._races,
            self._lifetimes.latent,
            self._moved,
            self._mistakes,
            sum(world.memory.pieces for world in worlds),
        )

    @property
    def at(self) -> int:
        """The number of the record being fed; who does not divide a run need not set it."""
        return self._at

    @at.setter
    def at(self, number: int) -> None:
        """Set it; the lifetimes of blocks need it too."""
        self._at = self._lifetimes.at = number

    def _make_handlers(self) -> dict[type, Callable[[Any], None]]:
        order, names, lifetimes = self._run.order, self._names, self._lifetimes
        figures = self._figures
        return {
            r.Operation: self._operation,
            r.Header: figures.header,
            r.Note: figures.note,
            r.End: figures.end,
            r.SiteDef: names.define_site,
            r.StackDef: names.define_stack,
            r.ThreadDef: self._thread,
            r.ThreadEnd: self._end_thread,
            r.StreamDef: self._stream,
            r.EventRecord: self._record,
            r.EventWait: self._wait,
            r.EventSync: lambda x: order.event_sync(x.event, x.thread, x.stack),
            r.EventDestroy: lambda x: order.destroy_event(x.event),
            r.StreamSync: lambda x: order.stream_sync(x.stream, x.thread, x.stack),
            r.DeviceSync: lambda x: order.device_sync(x.device, x.thread, x.stack),
            r.HostRelease: lambda x: order.release(x.object, x.thread),
            r.HostAcquire: lambda x: order.acquire(x.object, x.thread),
            r.Alloc: lifetimes.alloc,
            r.Free: lifetimes.free,
            r.RecordStream: lifetimes.mark,
            r.GraphDestroy: self._destroy_graph,
            r.Misuse: self._misuse,
        }

    # Operations

    def _operation(self, op: r.Operation) -> None:
        figures = self._figures
        figures.operations += 1
        figures.accesses += len(op.accesses)
        if op.captured:
            self._capture(op)
            return
        order = self._run.order
        order.now = op.seq
        if op.kind == _HOST:
            timeline = order.thread(op.timeline)
            epoch = order.perform(timeline)
        else:
            timeline = order.timelines.get(op.timeline) or order.stream(op.timeline)
            epoch = order.operate(timeline, op.thread)
            if op.kind == _LAUNCH:  # G2: one operation, made of its nodes' accesses
                order.launch(timeline, op.graph, op.stack)
        self._touch(self._run, op, epoch, timeline.clock)

    def _capture(self, op: r.Operation) -> None:
        """Rule G1: captured work executes nothing; it is checked within its own graph."""
        world = self._world(op.graph)
        world.order.now = op.seq
        stream = world.order.stream(op.timeline)
        epoch = world.order.operate(stream, op.thread)
        self._touch(world, op, epoch, stream.clock)
        for access in op.accesses:
            block = self._run.memory.shadow(access.space).block_at(access.address)
            if block is not None:
                block.captured = True

    def _world(self, graph: int) -> _World:
        """Where captured work of `graph` is checked, or for no graph, the run itself."""
        if graph == r.NONE:
            return self._run
        found = self._captures.get(graph)
        if found is None:
            found = self._captures[graph] = _World(self._losses, captured=True)
        return found

    def _touch(self, world: _World, op: r.Operation, epoch: int, clock: Clock) -> None:
        """File the accesses of an operation, and report what races with it."""
        division = self._division
        accesses = op.accesses if division is None else division.mine(op)
        hits = world.memory.touch(op, accesses, epoch, clock)
        if hits:
            met: set[int] = set()
            for access, nth, use in hits:
                self._race(world, use, op, access, nth, first=id(use[1]) not in met)
                met.add(id(use[1]))

    def _touch_point(self, op: r.Operation, epoch: int, clock: Clock) -> None:
        """File a point at which stream-ordered memory is allocated or freed (M4)."""
        self._points += 1
        self._touch(self._run, op, epoch, clock)

    def _race(
        self, world: _World, use: Use, op: r.Operation, access: r.Access, nth: int, first: bool
    ) -> None:
        """`op` races with a `use`, the `nth` that its access met.

        `first`: no other bytes of theirs have met yet.
        """
        division = self._division
        if division is not None and not division.tells(access.space, access.address):
            return
        epoch, earlier, touched, block, _ = use
        shadow = self._run.memory.shadow(access.space)
        if block is None and world.captured:
            block = shadow.block_at(touched.address)
        now = shadow.block_at(max(access.address, touched.address))
        conflict = _facts.gather(
            world.order,
            epoch,
            _facts.Part(earlier, touched, block),
            _facts.Part(op, access, now),
            world.captured,
        )
        point = op.seq == _facts.LIFETIME
        place = _POINTS + self._points if point else op.accesses.index(access)
        at = (self._figures.operations, place, nth)
        telling = Telling(conflict, kind_of(conflict, world.order), at, conflict.confidence)
        key = (self._names.key(earlier), self._names.key(op))
        race = self._races.get(key)
        if race is None:
            race = self._races[key] = Race(telling, at)
        race.add(telling)
        self._certain = self._certain or telling.confidence > r.Confidence.POSSIBLE
        if division is not None and division.shared(op) and division.shared(earlier):
            race.pairs.add((earlier.seq, op.seq))
        elif first:
            race.count += 1
        if conflict.moved and block is not None:
            dismiss(block, earlier.timeline)
            self._moved.add((key[0], self._names.line(block.free_stack)))

    # Streams, threads and events

    def _thread(self, record: r.ThreadDef) -> None:
        self._names.define_thread(record)
        self._run.order.define_thread(record)

    def _end_thread(self, record: r.ThreadEnd) -> None:
        gone = self._run.order.end_thread(record.timeline)
        if gone:
            self._lifetimes.forget_threads(gone)
            for shadow in self._run.memory.shadows.values():
                shadow.forget(gone)

    def _stream(self, record: r.StreamDef) -> None:
        self._figures.streams += 1
        self._names.define_stream(record)
        self._run.order.define_stream(record)

    def _record(self, x: r.EventRecord) -> None:
        self._world(x.captured).order.record(x.event, x.stream, x.thread, x.stack)

    def _wait(self, x: r.EventWait) -> None:
        order = self._world(x.captured).order
        if not order.wait(x.event, x.stream, x.thread, x.stack) and self._first_share:
            text = "the wait is for an event that was never recorded, which orders nothing"
            repair = ["record the event before the wait is issued, or leave the wait out"]
            self._mistake(Mistake("R05-EVENT-MISUSE", text, x.thread, x.stack, x.stream, repair))

    def _destroy_graph(self, record: r.GraphDestroy) -> None:
        self._captures.pop(record.graph, None)
        self._lifetimes.destroy_graph(record)

    # Misuse and latent races

    @property
    def _first_share(self) -> bool:
        """Whether to tell what is not about memory: one of several checkers does."""
        return self._division is None or self._division.share == 0

    def _misuse(self, x: r.Misuse) -> None:
        if self._first_share:
            self._mistake(Mistake(x.kind, x.text, x.thread, x.stack, x.stream, []))

    def _mistake(self, mistake: Mistake) -> None:
        key = (mistake.kind, mistake.text, self._names.line(mistake.stack))
        mistake.at = self._at
        self._mistakes.setdefault(key, mistake).count += 1
