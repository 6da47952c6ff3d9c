"""The checker against the naive oracle, on small random programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.detect import _segments, _shadow
from streamsan.model import records as r
from streamsan.model.extent import Extent
from tests.unit.builder import Bytes, Trace
from tests.unit.oracle import Oracle

EXTENTS: list[Bytes] = [
    (0, 8),
    (0, 16),
    (4, 12),
    (8, 16),
    (16, 24),
    (12, 20),
    (0, 24),
    (0, 1, (12,), (2,)),
    (1, 1, (12,), (2,)),  # interleaved, split into runs
    (0, 1, (20,), (1,)),
    (32, 1, (20,), (2,)),
    (33, 1, (20,), (2,)),  # many runs: compared exactly
    (32, 2, (18,), (3,)),
    (32, 72),
]
Action = tuple[int, int, int, int, int, int]
ACTION = st.tuples(
    st.integers(0, 13),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, len(EXTENTS) - 1),
    st.integers(1, 3),
    st.integers(1, 6),
)


class Program:
    """A random program: one legacy, one blocking and one non-blocking stream, and two threads."""

    def __init__(self, actions: list[Action]) -> None:
        """Perform the actions one by one."""
        self.trace = Trace()
        self.streams = [
            self.trace.default,
            self.trace.stream("blocking", blocking=True, line=100),
            self.trace.stream("other", line=101),
        ]
        self.threads = [self.trace.main, self.trace.thread("worker", self.trace.main)]
        self.blocks: dict[int, int] = {}
        for action in actions:
            self._perform(*action)

    def _perform(self, kind: int, a: int, b: int, touched: int, mode: int, line: int) -> None:
        trace, stream, thread = self.trace, self.streams[a], self.threads[b]
        others: list[Callable[[], None]] = [
            lambda: trace.record(a, self.streams[mode - 1], line, thread=thread),
            lambda: trace.wait(mode - 1, stream, line, thread=thread),
            lambda: trace.event_sync(a, thread),
            lambda: trace.stream_sync(stream, thread),
            lambda: trace.hand_over(thread, self.threads[1 - b], mode),
            lambda: trace.add(r.EventDestroy(a, thread)),
            lambda: self._toggle(mode),
            lambda: self._mark(mode, stream),
            lambda: self._operate(stream, thread, touched, mode, line, graph=line % 2),
            lambda: self._operate(thread, thread, touched, mode, line),
        ]
        if kind < len(others):
            others[kind]()
        else:
            self._operate(stream, thread, touched, mode, line)

    def _operate(
        self, timeline: int, thread: int, touched: int, mode: int, line: int, graph: int = r.NONE
    ) -> None:
        access: dict[str, Any] = {("read", "write", "update")[mode - 1]: [EXTENTS[touched]]}
        kind = r.OpKind.HOST if timeline == thread else r.OpKind.KERNEL
        if graph != r.NONE:
            kind = r.OpKind.GRAPH_LAUNCH
        self.trace.op(
            timeline,
            line=line,
            thread=thread,
            kind=kind,
            graph=graph,
            **access,
        )

    def _toggle(self, which: int) -> None:
        """Hand out one of three blocks, or give it up."""
        if which in self.blocks:
            self.trace.free(self.blocks.pop(which), 102)
        else:
            start = (which - 1) * 12
            self.blocks[which] = self.trace.alloc(start, start + 12, line=103)

    def _mark(self, which: int, stream: int) -> None:
        if which in self.blocks:
            self.trace.mark(self.blocks[which], stream)


@pytest.mark.parametrize("room", [1, 16])
def test_the_checker_finds_what_the_oracle_finds(room: int) -> None:
    @settings(max_examples=400, deadline=None)
    @given(st.lists(ACTION, min_size=12, max_size=60))
    def check(actions: list[Action]) -> None:
        trace = Program(actions).trace
        oracle = Oracle()
        for record in trace.records:
            oracle.feed(record)
        assert set(trace.races()) == oracle.races

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_segments, "_ROOM", room)
        check()


def test_a_sweep_forgets_nothing_that_may_still_race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shadow, "_SWEEP", 2)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(ACTION, min_size=12, max_size=60))
    def check(actions: list[Action]) -> None:
        trace = Program(actions).trace
        oracle = Oracle()
        for record in trace.records:
            oracle.feed(record)
        assert set(trace.races()) == oracle.races

    check()


def test_extents_of_the_programs_have_both_forms() -> None:
    strided: list[Extent] = [e for e in EXTENTS if len(e) == 4]
    counts = sorted(e[2][0] for e in strided)
    assert counts[0] <= _shadow._FEW_RUNS < counts[-1]
