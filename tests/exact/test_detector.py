"""The detector against all executions of small programs: races, latent races, order.

A few hundred programs in every run; ``make exact`` tries 20,000 new ones of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given

from streamsan.detect import _segments, _shadow
from streamsan.model import records as r
from streamsan.order import Order, _objects, _order
from tests.exact.examples import examples, listing
from tests.exact.executions import neighbours
from tests.exact.machine import Machine, captured_by
from tests.exact.oracle import latent, races, sorted_races
from tests.exact.programs import ARENAS, LOOSE, PROGRAMS, Action, Program, Setup
from tests.unit.oracle import Oracle

FORGETS = [
    (_segments, "_ROOM"), (_shadow, "_SWEEP"),
    (_order, "_FEW_EVENTS"), (_order, "_FEW_THREADS"), (_objects, "_FEW"),
]  # fmt: skip
"""Where the checker begins to look for what it may forget; small programs never get there."""

Drawn = tuple[Setup, list[Action]]


@examples(500)
@given(LOOSE, ARENAS)
def test_races_are_the_pairs_that_can_run_in_either_order(drawn: Drawn, arena: str) -> None:
    program = Program(*drawn, arena=arena)
    told = program.trace.races()
    assert len(told) == len(set(told))
    assert set(told) == races(program.records), listing(program.records)


@examples(300)
@given(LOOSE, ARENAS)
def test_races_that_rest_on_a_guess_are_told_apart(drawn: Drawn, arena: str) -> None:
    program = Program(*drawn, arena=arena, guesses=True)
    told = set(program.trace.races()), set(program.trace.possible())
    assert told == sorted_races(program.records), listing(program.records)


@examples(300)
@given(LOOSE, ARENAS)
def test_races_stay_when_all_is_forgotten_that_can_be(drawn: Drawn, arena: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, threshold in FORGETS:
            patch.setattr(module, threshold, 1)
        program = Program(*drawn, arena=arena)
        assert set(program.trace.races()) == races(program.records), listing(program.records)


@examples(500)
@given(LOOSE, ARENAS)
def test_latent_races_are_those_that_another_allocation_would_bring(
    drawn: Drawn, arena: str
) -> None:
    program = Program(*drawn, arena=arena)
    told = program.trace.latent()
    assert len(told) == len(set(told))
    assert set(told) == latent(program.records), listing(program.records)


@examples(300)
@given(PROGRAMS)
def test_order_is_that_of_the_graph_and_of_all_executions(drawn: Drawn) -> None:
    memory = (r.Alloc, r.Free, r.RecordStream)
    records = [
        x for x in Program(*drawn).records if captured_by(x) == r.NONE and not isinstance(x, memory)
    ]
    machine, graph = Machine(records), Oracle()
    for record in records:
        graph.feed(record)
    clocks = ordered(records)
    free = neighbours(machine)
    count = len(machine.works)
    pairs = [(a, b) for b in range(count) for a in range(b)]
    by_clock = {(a, b) for a, b in pairs if clocks[a][1] > clocks[b][2].get(clocks[a][0], 0)}
    by_graph = {(a, b) for a, b in pairs if not graph.before(a, b)}
    assert by_clock == by_graph == free, listing(records)


@examples(100)
@given(PROGRAMS)
def test_steps_without_work_may_be_taken_as_soon_as_they_can(drawn: Drawn) -> None:
    setup, actions = drawn
    machine = Machine(Program(setup, actions[:14]).records)
    assert neighbours(machine) == neighbours(machine, idle=True)


ORDER: dict[type, Callable[[Order, Any], object]] = {
    r.ThreadDef: Order.define_thread,
    r.StreamDef: Order.define_stream,
    r.EventRecord: lambda o, x: o.record(x.event, x.stream, x.thread, x.stack),
    r.EventWait: lambda o, x: o.wait(x.event, x.stream, x.thread, x.stack),
    r.EventSync: lambda o, x: o.event_sync(x.event, x.thread, x.stack),
    r.EventDestroy: lambda o, x: o.destroy_event(x.event),
    r.StreamSync: lambda o, x: o.stream_sync(x.stream, x.thread, x.stack),
    r.DeviceSync: lambda o, x: o.device_sync(x.device, x.thread, x.stack),
    r.HostRelease: lambda o, x: o.release(x.object, x.thread),
    r.HostAcquire: lambda o, x: o.acquire(x.object, x.thread),
}


def ordered(records: Sequence[r.AnyRecord]) -> list[tuple[int, int, dict[int, int]]]:
    """Timeline, epoch and clock of each operation, by `streamsan.order` alone."""
    order, found = Order(), []
    for x in records:
        if type(x) in ORDER:
            ORDER[type(x)](order, x)
        elif isinstance(x, r.Operation):
            host = x.kind == r.OpKind.HOST
            timeline = order.thread(x.timeline) if host else order.stream(x.timeline)
            epoch = order.perform(timeline) if host else order.operate(timeline, x.thread)
            if x.kind == r.OpKind.GRAPH_LAUNCH:
                order.launch(timeline, x.graph, x.stack)
            found.append((x.timeline, epoch, dict(timeline.clock)))
    return found
