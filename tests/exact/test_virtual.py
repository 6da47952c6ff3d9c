"""The virtual GPU against all executions: no schedule of it does what the rules do not allow."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamsan.allocator import caching
from streamsan.model import records as r
from tests.exact.driven import SEGMENT, DrivenTrace, driven
from tests.exact.examples import examples, listing
from tests.exact.machine import Byte, Machine
from tests.exact.oracle import Pair, Pairs, conflicts, races
from tests.exact.programs import ARENAS, FIRST_LOOSE, PROGRAMS, Action, Setup
from tests.exact.values import outcomes, reads

Drawn = tuple[Setup, list[Action]]
SCHEDULES = st.sampled_from(["late", "hold:default", *(f"random:{seed}" for seed in range(30))])

MOST_WORKS = 12
"""Works of a program whose executions are all carried out with their values."""


@examples(300)
@given(PROGRAMS, SCHEDULES, ARENAS)
def test_a_program_without_races_gives_the_serial_result(
    drawn: Drawn, schedule: str, allocator: str
) -> None:
    trace = driven(*drawn, schedule, allocator)
    assert set(trace.races()) == races(trace.records), listing(trace.records)
    if not conflicts(Machine(trace.records)):
        serial = driven(*drawn, "program", allocator).result()
        assert trace.result() == serial, listing(trace.records)


@examples(200)
@given(PROGRAMS, SCHEDULES, ARENAS)
def test_what_comes_out_is_what_some_execution_gives(
    drawn: Drawn, schedule: str, allocator: str
) -> None:
    trace = driven(*drawn, schedule, allocator)
    machine = Machine(trace.records, reuse=True)
    assume(len(machine.works) <= MOST_WORKS)
    assert trace.outcome() in outcomes(machine), listing(trace.records)


@examples(200)
@given(PROGRAMS)
def test_a_race_shows_in_some_execution_and_nothing_else_does(drawn: Drawn) -> None:
    trace = driven(*drawn, "program")
    machine = Machine(trace.records, reuse=True)
    assume(len(machine.works) <= MOST_WORKS)
    results = outcomes(machine)
    assert trace.outcome() in results
    # A run that got other bytes because some were still in use (M2) is none of these executions.
    if any(_visible(machine, pair, touched) for pair, touched in conflicts(machine).items()):
        assert len(results) > 1, listing(trace.records)
    if not conflicts(Machine(trace.records)):
        assert len(results) == 1, listing(trace.records)


def _visible(machine: Machine, pair: Pair, touched: set[Byte]) -> bool:
    """Whether the order of two works must show: in what one reads, or in what stays at the end."""
    return any(
        byte in reads(machine.works[pair[0]]) | reads(machine.works[pair[1]])
        or not any(byte in w.touches for n, w in enumerate(machine.works) if n not in pair)
        for byte in touched
    )


def test_the_outcomes_of_a_race_are_reached_by_schedules() -> None:
    """Two unordered updates of one byte: the schedules give both results that there are."""
    found = set()
    for schedule in ("program", *(f"random:{seed}" for seed in range(40))):
        trace = DrivenTrace(schedule)
        for stream in (trace.stream(line=1), trace.stream(line=2)):
            trace.op(stream, update=[(0, 1)], line=10 + stream)
        trace.finish()
        found.add(trace.outcome())
    assert found == outcomes(Machine(trace.records))
    assert len(found) == 2


def test_waiting_for_the_legacy_stream_waits_for_blocking_streams() -> None:
    """Rule D1: such a wait is an operation of the stream, though it has no work of its own."""
    for query in (False, True):
        trace = DrivenTrace("late")
        blocking = trace.stream(blocking=True)
        trace.op(blocking, write=[(0, 4)], line=10)
        trace.stream_sync(trace.default, query=query)
        trace.op(trace.main, kind=r.OpKind.HOST, read=[(0, 4)], line=11)
        trace.finish()
        assert trace.races() == []
        assert {trace.outcome()} == outcomes(Machine(trace.records))


def test_a_wait_for_what_is_done_is_an_operation_of_the_legacy_stream() -> None:
    """Rule D1: it comes after blocking streams' work, and their later work after it."""
    for seed in range(40):
        trace = DrivenTrace(f"random:{seed}")
        one, two = (trace.stream(blocking=True) for _ in range(2))
        trace.record(1, one)
        trace.event_sync(1)
        trace.op(two, read=[(0, 4)], line=10)
        trace.wait(1, trace.default)
        trace.op(one, write=[(0, 4)], line=11)
        trace.finish()
        assert trace.races() == []
        assert {trace.outcome()} == outcomes(Machine(trace.records))


@pytest.mark.parametrize("schedule", ["program", "late"])
def test_a_quarantine_hands_out_what_the_device_has_done_with(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The use of the old block races with the fill at its free, and with no use of the next one."""
    monkeypatch.setattr(caching, "SMALL_SEGMENT", SEGMENT)
    trace = DrivenTrace(schedule, "quarantine")
    owner, side = trace.stream(), trace.stream()
    first = trace.alloc(8, 12, owner)
    trace.record(1, owner)
    trace.wait(1, side)
    trace.op(side, read=[(8, 12)], line=100)
    trace.free(first, line=101)
    trace.alloc(8, 12, owner)
    places = [x.address for x in trace.records if isinstance(x, r.Alloc)]
    assert len(set(places)) == (1 if schedule == "program" else 2)
    assert trace.races() == [(100, 101)]
    assert races(trace.records) == {(100, 101)}


def test_a_machine_is_gone_with_its_trace() -> None:
    """A long run makes tens of thousands in one process, and addresses are not without an end."""
    actions = [(kind, kind % 3, 0, 3, 1) for kind in range(FIRST_LOOSE)]
    trace = driven(((0, 1, 2), 2, 1), actions, "late")
    gpu = weakref.ref(trace.gpu)
    del trace
    gc.collect()
    assert gpu() is None


def test_conflicts_name_the_bytes_they_are_on() -> None:
    trace = DrivenTrace("program")
    side = trace.stream()
    trace.op(trace.default, write=[(0, 3)])
    trace.op(side, read=[(2, 4)])
    pairs: Pairs = conflicts(Machine(trace.records))
    assert pairs == {(0, 1): {(0, 2)}}
