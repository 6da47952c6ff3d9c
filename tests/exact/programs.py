"""Small random programs: a drawn list of numbers becomes the records of a run.

Up to three streams (legacy default, blocking, non-blocking, those of a second device), two host
threads at a time, and ten works that touch one place or two; events that are recorded again, waited
for, queried and destroyed; host and device synchronisation; blocks of three allocators that are
handed out, marked, given up and reused, one of which may be a quarantine, or an arena with any of
its policies; graphs that are captured at a stretch, launched and destroyed; with `LOOSE`, captured
work, blocks of pools and launches in any order.
Each call has a line of its own, so that a report names works one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from streamsan.model import records as r
from tests.exact.arena import Arena
from tests.unit.builder import Bytes, Trace
from tests.unit.builder import access as accessed

MOST_WORKS = 10

Action = tuple[int, int, int, int, int]
Setup = tuple[tuple[int, int, int], int, int]
"""Kinds of the streams, number of threads, and how many of the others each work waits for."""

_STREAMS: list[dict[str, Any]] = [
    {"default": True},
    {"blocking": True},
    {},
    {"device": 1},
    {"device": 1, "blocking": True},
]
STREAM = st.sampled_from([0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4])
SETUP = st.tuples(
    st.tuples(STREAM, STREAM, STREAM), st.integers(1, 2), st.sampled_from([0, 0, 1, 2, 3])
)
FIRST_OF_GRAPHS = 37
FIRST_LOOSE = FIRST_OF_GRAPHS + 8


def _programs(kinds: int) -> st.SearchStrategy[tuple[Setup, list[Action]]]:
    action = st.tuples(
        st.integers(0, kinds - 1),
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(0, 19),
        st.integers(0, 3),
    )
    return st.tuples(SETUP, st.lists(action, min_size=12, max_size=30))


PROGRAMS = _programs(FIRST_LOOSE)
LOOSE = _programs(FIRST_LOOSE + 9)
"""The same, and what no machine does, but records can hold."""

BLOCKS: list[tuple[str, int, int, int]] = [  # allocator, space, first byte, bytes
    ("caching", 0, 8, 4),
    ("caching", 0, 12, 4),
    ("caching", 0, 8, 8),
    ("stream-ordered", 0, 16, 4),
    ("stream-ordered", 0, 16, 8),
    ("pinned", r.HOST, 0, 4),
]
ARENAS = st.sampled_from(
    ["caching", "caching", "quarantine", "bfc:async", "bfc:host-sync", "bfc:frontier", "bfc:event"]
)
"""What may stand in for the caching allocator."""

_MODES = {"read": "READ", "write": "WRITE", "update": "READ_WRITE"}

CAPTURED_EVENT = 50
UNCAPTURED = 900
"""Numbers from here on are those of graphs whose capture nobody has seen, or only by the way."""

STATIC = (0, 4)
"""Bytes that no allocator hands out, of device 0 and of the host alike."""


class Program:
    """Performs a setup and its actions, as far as each makes sense where it stands.

    With `guesses`, some of its accesses are but possible.
    """

    def __init__(
        self,
        setup: Setup,
        actions: Sequence[Action],
        trace: Trace | None = None,
        arena: str = "caching",
        guesses: bool = False,
    ) -> None:
        kinds, threads, self.care = setup
        self.guesses = guesses
        self.arena = Arena(arena)
        self.trace = trace if trace is not None else Trace()
        self.works = 0
        self.streams = [self._stream(kind) for kind in kinds]
        self.threads = [self.trace.main]
        if threads == 2:
            self.threads.append(self.trace.thread("worker", self.trace.main))
        self.live: dict[int, int] = {}
        self.graphs: list[int] = []
        for action in actions:
            self._act(*action)

    @property
    def records(self) -> list[r.AnyRecord]:
        """The records of the run."""
        return self.trace.records

    def _stream(self, kind: int) -> int:
        if kind == 0:
            return self.trace.default
        return self.trace.stream(**_STREAMS[kind])

    def _act(self, kind: int, a: int, b: int, place: int, form: int) -> None:
        trace, stream, thread = self.trace, self.streams[a], self.threads[b % len(self.threads)]
        other = self.threads[(b + 1) % len(self.threads)]
        event = 1 + form % 2
        calls: list[Callable[[], object]] = [
            lambda: trace.record(event, stream, thread=thread),
            lambda: trace.record(event, stream, thread=thread),
            lambda: trace.wait(event, stream, thread=thread),
            lambda: trace.wait(event, stream, thread=thread),
            lambda: trace.wait(event, stream, thread=thread),
            lambda: trace.event_sync(event, thread, query=form > 1),
            lambda: trace.stream_sync(stream, thread, query=form > 1),
            lambda: trace.device_sync(form // 2, thread),
            lambda: trace.hand_over(thread, other, event),
            lambda: trace.add(r.HostRelease(event, thread)),
            lambda: trace.add(r.HostAcquire(event, thread)),
            lambda: trace.add(r.EventDestroy(event, thread)),
            lambda: trace.add(r.EventDestroy(event, thread)),
            lambda: self._alloc(place, stream, thread),
            lambda: self._alloc(place, stream, thread),
            lambda: self._alloc(place, stream, thread),
            lambda: self._free(place, thread),
            lambda: self._free(place, thread),
            lambda: self._mark(place, stream),
            lambda: self._join(stream, thread, form),
            lambda: self._end(joined=form > 1),
            lambda: self._start(thread),
            lambda: self._work(thread, thread, place, form, r.OpKind.HOST),
            lambda: self._work(thread, thread, place, form, r.OpKind.HOST),
            lambda: self._work(thread, thread, place, form, r.OpKind.HOST),
            lambda: self._work(
                stream, thread, place, form, r.OpKind.GRAPH_LAUNCH, graph=UNCAPTURED + event
            ),
        ]
        if kind < len(calls):
            calls[kind]()
        elif kind >= FIRST_LOOSE:
            self._loose(kind - FIRST_LOOSE, stream, thread, place, form)
        elif kind >= FIRST_OF_GRAPHS:
            self._graph(kind - FIRST_OF_GRAPHS, stream, thread, place, form)
        else:
            self._work(stream, thread, place, form, r.OpKind.KERNEL)

    # Graphs

    def _graph(self, kind: int, stream: int, thread: int, place: int, form: int) -> None:
        """A capture, a launch or the end of a graph; and the end of cached memory."""
        graph = self.graphs[place % len(self.graphs)] if self.graphs else r.NONE
        if kind < 3:
            self._capture(stream, thread, place, form)
        elif kind == 7:
            self.trace.empty_cache(thread)
        elif graph != r.NONE and kind == 6:
            self.graphs.remove(graph)
            self.trace.destroy_graph(graph, thread)
        elif graph != r.NONE:
            self._launch(graph, stream, thread)

    def _launch(self, graph: int, stream: int, thread: int) -> None:
        if self.works < MOST_WORKS:
            self.works += 1
            for other in range(self.care):
                self._join(stream, thread, other)
            self.trace.launch(graph, stream, thread)

    def _capture(self, stream: int, thread: int, place: int, form: int) -> None:
        """A graph of one to three nodes, on one stream or two, with blocks of its pool or not;
        launched at once, or only later.
        """
        others = [s for s in self.streams if s not in (stream, self.trace.default)]
        if stream == self.trace.default:
            return
        pool_of = self.graphs[-1] if self.graphs and form % 2 else r.NONE
        graph = self.trace.begin_capture(stream, thread, pool_of)
        if graph is None:
            return
        where = {"graph": graph, "captured": True}
        shape = place % 5

        def node(on: int, form: int = form) -> None:
            self._work(on, thread, place + form, form % 4, r.OpKind.KERNEL, **where)

        if shape >= 3 and self.arena.name == "caching":
            self._alloc(place % 3, stream, thread, graph)
            node(stream)
            if shape == 4:
                self._free(place, thread)
                self._alloc(form % 3, stream, thread, graph)
                node(stream, form + 1)
        elif shape >= 1 and others:
            node(stream)
            self._after(others[0], stream, thread, graph)
            node(others[0], form + 1)
            if shape == 2:
                node(stream, form + 2)
            self._after(stream, others[0], thread, graph)
        else:
            node(stream)
        self.trace.end_capture(graph)
        self.graphs.append(graph)
        if form > 0:
            self._launch(graph, stream, thread)

    def _after(self, stream: int, source: int, thread: int, graph: int) -> None:
        """A captured wait of one stream for another one."""
        self.trace.record(CAPTURED_EVENT, source, thread=thread, captured=graph)
        self.trace.wait(CAPTURED_EVENT, stream, thread=thread, captured=graph)
        self.trace.add(r.EventDestroy(CAPTURED_EVENT, thread))

    def _loose(self, kind: int, stream: int, thread: int, place: int, form: int) -> None:
        """Captured work and events, blocks of a pool and the end of a graph, wherever they come."""
        trace, graph, event = self.trace, UNCAPTURED + 1 + form % 2, 1 + form // 2
        if kind < 4:
            where = {"graph": graph, "captured": True}
            self._work(stream, thread, place, form, r.OpKind.KERNEL, **where)
        elif kind == 4:
            trace.record(event, stream, thread=thread, captured=graph)
        elif kind < 7:
            trace.add(r.EventWait(event, stream, thread, trace.stack(None), graph))
        elif kind == 7:
            self._alloc(place, stream, thread, graph)
        else:
            trace.add(r.GraphDestroy(graph, thread))

    # Memory

    def _alloc(self, place: int, stream: int, thread: int, graph: int = r.NONE) -> None:
        """Hand a block out, if no other one lives on its bytes."""
        which = place % len(BLOCKS)
        allocator, space, start, size = BLOCKS[which]
        if not any(self._overlap(which, other) for other in self.live):
            owner = r.NONE if space == r.HOST else stream
            if allocator == "caching":
                allocator = self.arena.name
                former = [other for other in self.arena.events if self._overlap(which, other)]
                self.arena.take(self.trace, former, which, stream, thread)
            self.live[which] = self.trace.alloc(
                start,
                start + size,
                owner,
                allocator=allocator,
                space=space,
                thread=thread,
                graph=graph if space != r.HOST and allocator != "stream-ordered" else r.NONE,
            )

    def _overlap(self, which: int, other: int) -> bool:
        _, space, start, size = BLOCKS[which]
        _, space_2, start_2, size_2 = BLOCKS[other]
        return space == space_2 and start < start_2 + size_2 and start_2 < start + size

    def _free(self, place: int, thread: int) -> None:
        """Give one of the live blocks up."""
        if self.live:
            which = list(self.live)[place % len(self.live)]
            if BLOCKS[which][0] == "caching":
                self.arena.give_back(self.trace, which, thread)
            self.trace.free(self.live.pop(which), thread=thread)

    def _mark(self, place: int, stream: int) -> None:
        if self.live:
            self.trace.mark(list(self.live.values())[place % len(self.live)], stream)

    def _join(self, timeline: int, thread: int, other: int) -> None:
        """Let a stream, or the thread itself, wait for one of the streams."""
        source = self.streams[other % len(self.streams)]
        if timeline == thread:
            self.trace.stream_sync(source, thread)
        elif timeline != source:
            self.trace.record(3, source, thread=thread)
            self.trace.wait(3, timeline, thread=thread)

    def _end(self, joined: bool) -> None:
        """End the second thread; the first one may join it."""
        if len(self.threads) == 2:
            thread = self.threads.pop()
            self.trace.add(r.HostRelease(9, thread))
            self.trace.add(r.ThreadEnd(thread))
            if joined:
                self.trace.add(r.HostAcquire(9, self.trace.main))

    def _start(self, thread: int) -> None:
        """Start a second thread, if there is none."""
        if len(self.threads) == 1:
            self.threads.append(self.trace.thread("worker", thread))

    # Works

    def _places(self, host: bool) -> list[tuple[int, int, int]]:
        """Where a work may go: space, first byte, bytes. The host reaches no device block."""
        places = [(0, *STATIC), (r.HOST, 8, 4)]
        blocks = [BLOCKS[which][1:] for which in self.live]
        return places + [block for block in blocks if not host or block[0] == r.HOST]

    def _work(
        self, timeline: int, thread: int, place: int, form: int, kind: r.OpKind, **more: Any
    ) -> None:
        if self.works == MOST_WORKS:
            return
        self.works += 1
        for other in range(0 if "captured" in more else self.care):
            self._join(timeline, thread, other)
        places = self._places(kind == r.OpKind.HOST)
        # the newest block first, so that programs mostly use what they allocate
        space, start, size = places[-1 - place // 4 % len(places)]
        touched: list[Bytes] = [
            (start, start + size),
            (start, start + size // 2),
            (start + size // 2, start + size),
            (start, 1, (size // 2,), (2,)),
        ]
        mode = ("read", "write", "write", "update")[form]
        access: dict[str, Any] = {mode: [touched[place % 4]]}
        if self.guesses and form % 3 == self.works % 3:
            sure = accessed(touched[place % 4], int(r.Mode[_MODES[mode]]), space)
            access = {"touched": [replace(sure, confidence=int(r.Confidence.POSSIBLE))]}
        used = [(space, start)]
        if (self.works + place) % 3 == 0:  # it reads another place, too
            other, low, length = places[self.works % len(places)]
            read = accessed((low, low + length), int(r.Mode.READ), other)
            access["touched"] = [*access.get("touched", ()), read]
            used.append((other, low))
        if timeline in self.streams:
            for which in self.live:
                if BLOCKS[which][1:3] in used:
                    self.arena.use(which, timeline)
        self.trace.op(timeline, thread=thread, kind=kind, space=space, **access, **more)
