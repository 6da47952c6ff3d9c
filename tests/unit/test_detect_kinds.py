"""Kinds, hazards and explanations: what the facts of a conflict prove, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.model.extent import Extent
from streamsan.model.findings import Finding
from tests.unit.builder import Trace

X = (0, 64)
COPY = r.OpKind.COPY


def only(t: Trace) -> Finding:
    """The one race of a run."""
    (race,) = t.report().races
    return race


def r01(t: Trace, side: int) -> None:
    t.op(side, write=[X])
    t.op(t.default, read=[X])


def r01_other_branch(t: Trace, side: int) -> None:
    other = t.stream("other")
    t.op(t.default, write=[X])
    t.op(other, write=[(100, 101)])
    t.wait_stream(side, other)
    t.op(side, read=[X])


def r02(t: Trace, side: int) -> None:
    t.op(t.default, read=[X])
    t.op(side, write=[X])


def r02_both_update(t: Trace, side: int) -> None:
    t.op(t.default, update=[X])
    t.op(side, update=[X])


def r02_update_of_what_was_written(t: Trace, side: int) -> None:
    t.op(t.default, write=[X])
    t.op(side, update=[X])


def r03(t: Trace, side: int) -> None:
    block = t.alloc(*X)
    t.op(side, read=[X])
    t.free(block)
    t.alloc(*X)
    t.op(t.default, write=[X])


def r04_early_record(t: Trace, side: int) -> None:
    t.record(1, side)
    t.op(side, write=[X])
    t.wait(1, t.default)
    t.op(t.default, read=[X])


def r04_reuse_behind_a_wait(t: Trace, side: int) -> None:
    block = t.alloc(*X)
    t.wait_stream(side, t.default)
    t.op(t.default, read=[X])
    t.free(block)
    t.alloc(*X)
    t.op(side, write=[X])


def r04_useless_wait(t: Trace, side: int) -> None:
    other = t.stream("other")
    t.op(side, write=[X])
    t.wait_stream(other, t.default)
    t.op(other, read=[X])


def r04_one_branch_not_joined(t: Trace, side: int) -> None:
    other = t.stream("other")
    t.wait_stream(side, t.default)
    t.wait_stream(other, t.default)
    t.op(side, write=[X])
    t.op(other, write=[(64, 128)])
    t.wait_stream(t.default, other)
    t.op(t.default, update=[(0, 128)])


def r05_never(t: Trace, side: int) -> None:
    t.wait(1, t.default)
    t.op(side, write=[X])
    t.record(1, side)
    t.op(t.default, read=[X])


def r05_replaced(t: Trace, side: int) -> None:
    other = t.stream("other")
    t.op(side, write=[X])
    t.record(1, side)
    t.record(1, other)
    t.wait(1, t.default)
    t.op(t.default, read=[X])


def r05_every_step(t: Trace, side: int) -> None:
    for step in range(3):
        slot = (step * 64, step * 64 + 64)
        t.record(1, side, line=50)
        t.op(side, write=[slot], line=51)
        t.wait(1, t.default, line=52)
        t.op(t.default, read=[slot], line=53)


def r05_wait_before_the_second_record(t: Trace, side: int) -> None:
    t.record(1, side)
    t.wait(1, t.default)
    t.op(side, write=[X])
    t.record(1, side)
    t.op(t.default, read=[X])


def r06(t: Trace, side: int) -> None:
    t.op(side, write=[X], node="MulBackward0")
    t.op(t.default, read=[X])


def r07(t: Trace, side: int) -> None:
    t.op(side, update=[X], kind=r.OpKind.COLLECTIVE)
    t.op(t.default, read=[X])


def r08(t: Trace, side: int) -> None:
    t.op(side, write=[X], space=r.HOST, kind=COPY, copy=int(r.CopyKind.DEVICE_TO_HOST))
    t.host(read=[X])


def r09(t: Trace, side: int) -> None:
    t.op(side, read=[X], space=r.HOST, kind=COPY, copy=int(r.CopyKind.HOST_TO_DEVICE))
    t.host(write=[X])


def r10(t: Trace, side: int) -> None:
    t.op(side, write=[X], kind=COPY, copy=int(r.CopyKind.PAGEABLE_TO_DEVICE))
    t.op(t.default, read=[X])


def r11(t: Trace, side: int) -> None:
    t.op(side, write=[X])
    t.op(t.default, read=[X], context=side)


def r13(t: Trace, side: int) -> None:
    t.op(side, write=[X])
    t.op(t.default, read=[X], kind=r.OpKind.GRAPH_LAUNCH, graph=1)


def r15(t: Trace, side: int) -> None:
    t.op(side, write=[X])
    t.op(t.stream("peer", device=1), read=[X])


PROGRAMS = [
    (r01, "R01-PROD-CONS"), (r01_other_branch, "R01-PROD-CONS"),
    (r02, "R02-SLOT-WAR"), (r02_both_update, "R02-SLOT-WAR"),
    (r02_update_of_what_was_written, "R02-SLOT-WAR"),
    (r03, "R03-ALLOC-REUSE"),
    (r04_early_record, "R04-EDGE-WRONG"), (r04_reuse_behind_a_wait, "R04-EDGE-WRONG"),
    (r04_useless_wait, "R04-EDGE-WRONG"), (r04_one_branch_not_joined, "R04-EDGE-WRONG"),
    (r05_never, "R05-EVENT-MISUSE"), (r05_replaced, "R05-EVENT-MISUSE"),
    (r05_every_step, "R05-EVENT-MISUSE"), (r05_wait_before_the_second_record, "R05-EVENT-MISUSE"),
    (r06, "R06-AUTOGRAD-STREAM"), (r07, "R07-COLL-INFLIGHT"), (r08, "R08-D2H-HOST-READ"),
    (r09, "R09-H2D-SRC-WRITE"), (r10, "R10-PAGEABLE-LEGACY"), (r11, "R11-WRONG-STREAM"),
    (r13, "R13-GRAPH-REPLAY"), (r15, "R15-MULTI-DEVICE"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "kind"), PROGRAMS, ids=[p.__name__ for p, _ in PROGRAMS])
def test_kind(program: Callable[[Trace, int], None], kind: str) -> None:
    t = Trace()
    program(t, t.stream("side"))
    assert only(t).kind == kind


def test_an_edge_that_a_synchronisation_outdates_is_no_wrong_edge() -> None:
    t = Trace()
    side = t.stream("side")
    t.wait_stream(t.default, side)
    t.device_sync()
    r01(t, side)
    assert only(t).kind == "R01-PROD-CONS"


@pytest.mark.parametrize(
    ("first", "second", "hazard"),
    [
        ("write", "read", "read-after-write"),
        ("write", "update", "write-after-write"),
        ("update", "read", "read-after-write"),
        ("read", "write", "write-after-read"),
        ("read", "update", "write-after-read"),
        ("write", "write", "write-after-write"),
        ("update", "update", "write-after-write"),
    ],
)
def test_hazard(first: str, second: str, hazard: str) -> None:
    t = Trace()
    one: dict[str, Any] = {first: [X]}
    two: dict[str, Any] = {second: [X]}
    t.op(t.stream("side"), **one)
    t.op(t.default, **two)
    assert only(t).hazard == hazard


def test_confidence_is_the_weaker_of_both() -> None:
    t = Trace()
    t.op(t.default, write=[X])
    guess = r.Access(0, 0, 64, (), (), 1, "x", int(r.Confidence.POSSIBLE))
    t.add(r.Operation(9, 0, "custom", t.stream("side"), t.main, t.stack(9), (guess,)))
    (found,) = t.report().possible
    assert found.confidence == "possible"


def test_many_tensors_of_one_operation_are_one_race() -> None:
    t = Trace()
    tensors = [(64 * i, 64 * i + 64) for i in range(10)]
    t.op(t.stream("side"), update=tensors)
    t.op(t.default, update=tensors)
    assert only(t).count == 1


def test_uses_of_one_line_with_gaps_do_not_stand_for_one_another() -> None:
    """Two columns of one matrix, both with more runs than are filed one by one."""
    t = Trace()
    side = t.stream("side")
    columns: list[Extent] = [(start, 4, (40,), (16,)) for start in (0, 4)]
    for column in columns:
        t.op(side, write=[column], line=10)
    t.op(t.default, write=[columns[0]], line=11)
    assert t.races() == [(10, 11)]


def test_an_older_read_and_an_older_write_both_race() -> None:
    t = Trace()
    t.op(t.stream("one"), write=[X], line=10)
    t.op(t.stream("two"), read=[X], line=11)
    t.op(t.default, write=[X], line=12)
    assert sorted(t.races()) == [(10, 11), (10, 12), (11, 12)]


# Explanations


def test_missing_and_nearest_edge_name_streams_and_lines() -> None:
    t = Trace()
    side = t.stream("copy_stream", line=1)
    t.record(1, side, line=10)
    t.op(side, write=[X], line=12, name="copy")
    t.wait(1, t.default, line=13)
    t.op(t.default, read=[X], line=14, name="mul")
    race = only(t)
    assert race.missing_edge == (
        "nothing orders stream 'copy_stream' (copy at train.py:12)"
        " before stream 'default' (mul at train.py:14)"
    )
    assert race.nearest_edge == (
        "stream 'default' last waited for stream 'copy_stream' at train.py:13, for an event"
        " recorded at train.py:10, before the write at train.py:12"
    )
    assert race.repair == [
        "move the record of the event at train.py:10 behind train.py:12",
        "torch.cuda.default_stream().wait_stream(copy_stream) before train.py:14",
    ]


def test_a_synchronisation_before_the_access_is_the_nearest_edge() -> None:
    t = Trace()
    side = t.stream("side")
    t.op(side, write=[(100, 101)])
    t.stack(29)
    t.stream_sync(side)
    t.op(side, write=[X], line=31)
    t.op(t.default, read=[X], line=32)
    assert only(t).nearest_edge == (
        "the host last waited for stream 'side' at train.py:30, before the write at train.py:31"
    )


def test_host_races_are_repaired_by_waiting_on_the_host() -> None:
    t = Trace()
    side = t.stream("copy_stream")
    t.op(side, write=[X], space=r.HOST, kind=COPY, copy=int(r.CopyKind.DEVICE_TO_HOST), line=10)
    t.host(read=[X], line=11)
    race = only(t)
    assert (race.second.stream, race.second.device) == ("host", "cpu")
    assert race.repair[0] == "copy_stream.synchronize() before train.py:11"


def test_block_reuse_is_repaired_at_the_line_of_the_free() -> None:
    t = Trace()
    side = t.stream("copy_stream")
    block = t.alloc(*X, target="batch", line=10)
    t.op(side, read=[(16, 32)], line=11)
    t.free(block, line=12)
    t.alloc(*X, line=13)
    t.op(t.default, write=[X], line=13)
    race = only(t)
    assert race.repair == [
        "batch.record_stream(copy_stream) before train.py:12",
        "or torch.cuda.default_stream().wait_stream(copy_stream) before train.py:12",
    ]
    assert race.memory.allocated is not None
    assert race.memory.freed is not None
    assert (race.memory.allocated.line, race.memory.freed.line) == (10, 12)
    assert (race.memory.size, race.memory.owner) == (64, "default")
    assert (race.first.range, race.second.range) == ((16, 32), (0, 64))


@pytest.mark.parametrize(
    ("program", "repair"),
    [
        (r05_never, "record the event on side after train.py:3, and before the wait at train.py:2"),
        (
            r05_wait_before_the_second_record,
            "move the wait at train.py:3 behind the record at train.py:5",
        ),
        (r05_replaced, "give the record at train.py:4 an event of its own"),
        (r11, "launch kernel at train.py:3 on side, as its caller does"),
        (r13, "torch.cuda.default_stream().wait_stream(side) before train.py:3"),
    ],
)
def test_repair(program: Callable[[Trace, int], None], repair: str) -> None:
    t = Trace()
    program(t, t.stream("side", line=1))
    assert only(t).repair[0] == repair


@pytest.mark.parametrize(
    ("name", "repair"),
    [
        ("nccl default_pg", "call wait() on the handle of the collective before train.py:3"),
        ("side", "torch.cuda.default_stream().wait_stream(side) before train.py:3"),
    ],
)
def test_collective_is_waited_for_by_its_handle_or_its_stream(name: str, repair: str) -> None:
    t = Trace()
    r07(t, t.stream(name, line=1))
    assert only(t).repair == [repair]


def test_streams_are_named_by_the_user_then_by_variable_then_by_line() -> None:
    t = Trace()
    names = [t.stream("x", name="compute", line=1), t.stream("side", line=2), t.stream("", line=3)]
    names += [t.stream("many", line=4), t.stream("many", line=4)]
    names += [t.stream("left, right", line=5), t.stream("left, right", line=5)]
    for stream in names:
        t.op(stream, read=[X], line=50 + stream)
    t.op(t.default, write=[X], line=99)
    assert [race.first.stream for race in t.report().races] == [
        "compute", "side", "stream made at train.py:3", "many[0]", "many[1]", "left", "right",
    ]  # fmt: skip


def test_default_streams_of_several_devices_are_told_apart() -> None:
    t = Trace()
    t.op(t.default, write=[X])
    t.op(t.stream(device=1, default=True), read=[X])
    race = only(t)
    assert [race.first.stream, race.second.stream] == ["default (cuda:0)", "default (cuda:1)"]
    assert race.repair == [
        "torch.cuda.default_stream(1).wait_stream(torch.cuda.default_stream(0)) before train.py:2"
    ]


def test_ids_do_not_depend_on_addresses_or_numbers() -> None:
    ids = set()
    for base in (0, 1 << 20):
        t = Trace()
        if base:
            t.stream("unused", line=90)
        side = t.stream("side", line=1)
        t.op(side, write=[(base, base + 64)], line=2)
        t.op(t.default, read=[(base, base + 64)], line=3)
        ids.add(only(t).id)
    assert len(ids) == 1
    assert ids.pop().startswith("R01-")


# The run itself


def test_has_races() -> None:
    checker = Checker()
    t = Trace()
    r01(t, t.stream("side"))
    told = []
    for record in t.records:
        checker.feed(record)
        told.append(checker.has_races)
    assert told == [False] * (len(told) - 1) + [True]


def test_summary() -> None:
    t = Trace()
    t.add(r.Header("virtual", {}, (), {}))
    t.op(t.default, read=[X], write=[(64, 128)])
    for _ in range(2):
        t.add(r.Note("blind-spot", "unseen kernel"))
    t.add(r.Note("internal-error", "oops"))
    before = t.report().summary
    t.add(r.End(3, 1.5))
    after = t.report().summary
    assert (before.complete, before.exit_status) == (False, None)
    assert (after.complete, after.exit_status, after.seconds) == (True, 3, 1.5)
    assert (after.operations, after.accesses, after.streams) == (1, 2, 1)
    assert (after.recorder, after.blind_spots) == ("virtual", ["unseen kernel (2 times)"])
    assert after.internal_errors == ["oops"]


def test_a_cut_is_told() -> None:
    t = Trace()
    for line in range(2000):
        t.op(t.default, read=[X], line=line)
    (told,) = t.report().summary.blind_spots
    assert "older uses were forgotten" in told
