"""A trace checked in pieces, or beside others, gives the report of the whole: to the byte."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan import session
from streamsan.detect import Checker, Results, Survey
from streamsan.errors import TraceError
from streamsan.model import records as r
from streamsan.model.findings import Report
from streamsan.session import _pieces as pieces
from streamsan.session import check_trace, check_traces
from streamsan.trace import Writer, read
from tests.unit.builder import Bytes, Trace
from tests.unit.samples import racy_run

TRACES = sorted((Path(__file__).parents[1] / "traces").rglob("*.streamsan"))
ISLANDS = 4
SPACES = (0, 1, r.HOST)


def whole(records: list[r.AnyRecord]) -> Report:
    """The report of one checker."""
    checker = Checker()
    for record in records:
        checker.feed(record)
    return checker.report()


def in_pieces(records: list[r.AnyRecord], shares: int) -> Report | None:
    """The report of several, whose results have gone from process to process; None: one share."""
    survey = Survey()
    for record in records:
        survey.feed(record)
    divisions = survey.divide(shares)
    if len(divisions) < 2:
        return None
    found: Results | None = None
    for division in divisions:
        checker = Checker(division=division)
        for number, record in enumerate(records):
            checker.at = number
            checker.feed(record)
        results: Results = pickle.loads(pickle.dumps(checker.results()))
        if found is None:
            found = results
        else:
            found.absorb(results)
    assert found is not None
    return found.report()


def as_json(report: Report | None) -> bytes:
    """A report to the byte."""
    return msgspec.json.encode(report)


@pytest.mark.parametrize("shares", [2, 5])
def test_the_traces_of_a_gpu(shares: int) -> None:
    divided = 0
    for path in TRACES:
        records = list(read(path))
        found = in_pieces(records, shares)
        if found is not None:
            divided += 1
            assert as_json(found) == as_json(whole(records)), path.name
    assert divided > 150


NUMBER = st.integers(0, 5)
ACTION = st.tuples(st.integers(0, 11), NUMBER, NUMBER, NUMBER, st.integers(1, 3))


class Program:
    """A random program on four islands in each of three spaces, whose operations touch several."""

    def __init__(self, actions: list[tuple[int, int, int, int, int]]) -> None:
        self.trace = Trace()
        self.streams = [
            self.trace.default,
            self.trace.stream("blocking", blocking=True, line=100),
            self.trace.stream("other", device=1, line=101),
        ]
        self.threads = [self.trace.main, self.trace.thread("worker", self.trace.main)]
        self.blocks: dict[tuple[int, int], int] = {}
        for action in actions:
            self._perform(*action)

    def _perform(self, kind: int, a: int, b: int, c: int, mode: int) -> None:
        trace, stream, thread = self.trace, self.streams[a % 3], self.threads[b % 2]
        if kind == 0:
            trace.record(a, stream, 10 + b, thread=thread)
        elif kind == 1:
            trace.wait(b, stream, 20 + c, thread=thread)
        elif kind == 2:
            trace.stream_sync(stream, thread)
        elif kind == 3:
            trace.hand_over(thread, self.threads[1 - b % 2], c)
        elif kind in (4, 5):
            self._toggle(c % 2, b % ISLANDS, stream, "stream-ordered" if kind == 5 else "caching")
        elif kind == 6 and (a % 2, b % ISLANDS) in self.blocks:
            trace.mark(self.blocks[a % 2, b % ISLANDS], stream)
        else:
            self._operate(stream, thread, [a, b, c], mode, SPACES[kind % 3])

    def _operate(self, stream: int, thread: int, islands: list[int], mode: int, space: int) -> None:
        touched: list[Bytes] = [
            (100 * (n % ISLANDS) + n, 100 * (n % ISLANDS) + n + 8) for n in islands
        ]
        self.trace.op(
            stream,
            line=30 + islands[0],
            thread=thread,
            read=touched[:1],
            write=touched[1:] if mode > 1 else [],
            update=touched[1:2] if mode > 2 else [],
            space=space,
        )

    def _toggle(self, space: int, island: int, stream: int, allocator: str) -> None:
        where = (space, island)
        if where in self.blocks:
            self.trace.free(self.blocks.pop(where), 50 + island)
            return
        start = 100 * island + (20 if allocator == "stream-ordered" and island % 2 else 0)
        self.blocks[where] = self.trace.alloc(
            start, start + 16, stream, allocator=allocator, space=space, line=60 + island
        )


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTION, min_size=10, max_size=60), st.integers(2, 4))
def test_generated_programs(actions: list[tuple[int, int, int, int, int]], shares: int) -> None:
    records = Program(actions).trace.records
    found = in_pieces(records, shares)
    assert found is None or as_json(found) == as_json(whole(records))


def test_generated_programs_have_races_latent_races_and_shares() -> None:
    actions = [(7, n % 6, n % 5, n % 4, 1 + n % 3) for n in range(12)]
    actions[4:4] = [(4, 0, 1, 0, 1), (8, 1, 1, 1, 1), (4, 0, 1, 0, 1)]
    found = in_pieces(Program(actions).trace.records, 4)
    assert found is not None
    assert len(found.races) > 3


def written(path: Path, records: list[r.AnyRecord]) -> Path:
    """A trace of `records`."""
    writer = Writer(path)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def racy(path: Path) -> Path:
    """A trace with a race on each of several islands."""
    trace = Trace()
    side = trace.stream()
    for island in range(6):
        there = (1000 * island, 1000 * island + 64)
        trace.op(side, write=[there, (9000, 9064)])
        trace.op(trace.default, read=[there, (9000, 9064)])
    return written(path, [*trace.records, r.End(0, 1.0)])


def test_processes_give_the_report_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = racy(tmp_path / "t")
    alone = check_trace(path)
    assert alone.report is not None
    assert len(alone.report.races) > 6
    monkeypatch.setattr(pieces, "GuardedChecker", None)  # so that nothing is checked in here
    parallel = check_trace(path, jobs=3)
    assert as_json(parallel.report) == as_json(alone.report)
    assert parallel.sources == alone.sources
    assert parallel.error is None


def test_a_trace_cut_short_in_pieces(tmp_path: Path) -> None:
    path = racy(tmp_path / "t")
    path.write_bytes(path.read_bytes() + b"torn")
    alone, parallel = check_trace(path), check_trace(path, jobs=2)
    assert parallel.error == alone.error
    assert parallel.report is not None
    assert not parallel.report.summary.complete
    assert as_json(parallel.report) == as_json(alone.report)


def test_several_traces_at_once(tmp_path: Path) -> None:
    paths = [racy(tmp_path / "0"), tmp_path / "missing", written(tmp_path / "2", racy_run())]
    alone, parallel = list(check_traces(paths, 1)), list(check_traces(paths, 2))
    assert [as_json(c.report) for c in parallel] == [as_json(c.report) for c in alone]
    assert [c.error is None for c in parallel] == [True, False, True]


def test_what_only_the_whole_tells_is_not_divided(tmp_path: Path) -> None:
    orphan = [*read(racy(tmp_path / "t"))]
    orphan.insert(-1, r.ThreadDef(77, "native", r.NONE, r.NONE))
    assert in_pieces(orphan, 4) is None
    twice = [record for record in read(tmp_path / "t") for _ in range(2)]
    assert in_pieces(twice, 4) is None


def test_a_process_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_check_share", _die)
    with pytest.raises(TraceError, match="was killed"):
        session.check_trace(racy(tmp_path / "t"), jobs=2)


def _die(*_: object) -> None:
    import os

    os._exit(9)
