"""Schedules: which work runs when, on the machine alone."""

from __future__ import annotations

import gc
import random
import sys

import pytest

from streamsan.errors import UsageError
from streamsan.virtual.schedule import parse
from streamsan.virtual.streams import Event, Task
from tests.virtual.machine import Machine

ALL = ("program", "late", "hold:default", "hold:side", "random:1", "random:2")


def submissions(gpu: Machine, seed: int, count: int = 120) -> list[str]:
    """A program of random submissions on four streams; the order that its waits demand."""
    chance = random.Random(seed)
    streams = [
        gpu.devices[0].default,
        gpu.named("side"),
        gpu.named("other"),
        gpu.external_stream(0, 9),
    ]
    events: list[Event] = []
    for number in range(count):
        stream = chance.choice(streams)
        match chance.randrange(6):
            case 0:
                events.append(gpu.event(stream))
            case 1 if events:
                gpu.wait(stream, chance.choice(events))
            case 2 if events and chance.random() < 0.3:
                gpu.sync_event(chance.choice(events))
            case 3 if chance.random() < 0.2:
                gpu.query_stream(stream)
            case _:
                gpu.put(stream, f"{stream.handle}:{number}")
    gpu.sync_device(0)
    return gpu.ran


@pytest.mark.parametrize("schedule", ALL)
def test_every_schedule_runs_everything_once_and_each_stream_in_order(schedule: str) -> None:
    for seed in range(20):
        ran = submissions(Machine(schedule), seed)
        asked = submissions(Machine("program"), seed)
        assert sorted(ran) == sorted(asked)
        for handle in {name.split(":")[0] for name in asked}:
            own = [name for name in ran if name.startswith(handle + ":")]
            assert own == [name for name in asked if name.startswith(handle + ":")]


@pytest.mark.parametrize("schedule", ALL)
def test_a_schedule_runs_the_same_order_every_time(schedule: str) -> None:
    for seed in range(10):
        assert submissions(Machine(schedule), seed) == submissions(Machine(schedule), seed)


def test_seeds_give_different_orders_and_none_is_program_order_always() -> None:
    orders = {tuple(submissions(Machine(f"random:{seed}"), 5)) for seed in range(8)}
    assert len(orders) > 4


@pytest.mark.parametrize("schedule", ALL)
def test_waits_are_kept_under_every_schedule(schedule: str) -> None:
    gpu = Machine(schedule)
    side, other = gpu.named("side"), gpu.named("other")
    for number in range(50):
        gpu.put(side, f"make {number}")
        gpu.wait(other, gpu.event(side))
        gpu.put(other, f"use {number}")
        gpu.wait(side, gpu.event(other))
    gpu.sync_stream(other)
    assert gpu.ran == [f"{what} {number}" for number in range(50) for what in ("make", "use")]


@pytest.mark.parametrize("schedule", ALL)
def test_a_loop_of_queries_comes_to_its_end(schedule: str) -> None:
    gpu = Machine(schedule)
    side, other = gpu.named("side"), gpu.named("other")
    gpu.put(side, *map(str, range(20)))
    gpu.wait(other, gpu.event(side))
    gpu.put(other, "last")
    event = gpu.event(other)
    turns = 0
    while not gpu.query_event(event):
        turns += 1
        assert turns < 100
    assert gpu.ran[-1] == "last"
    gpu.put(side, "more")
    while not gpu.query_stream(side):
        turns += 1
        assert turns < 100
    assert gpu.ran[-1] == "more"


def test_hold_keeps_one_stream_late_and_runs_the_others_at_once() -> None:
    gpu = Machine("hold:side")
    side, other = gpu.named("side"), gpu.named("other")
    gpu.put(side, "s1")
    gpu.put(other, "o1")
    assert gpu.ran == ["o1"]
    event = gpu.event(side)
    gpu.wait(other, event)
    gpu.put(other, "o2")
    gpu.put(gpu.devices[0].default, "d1")
    assert gpu.ran == ["o1", "d1"]
    gpu.sync_event(event)
    gpu.put(gpu.devices[0].default, "d2")
    assert gpu.ran == ["o1", "d1", "s1", "o2", "d2"]


@pytest.mark.parametrize(
    ("schedule", "name", "held"),
    [
        ("hold:copy", "copy", True), ("hold:copy", "self.copy", True),
        ("hold:self.copy", "self.copy", True), ("hold:copy", "copies", False),
        ("hold:streams[1]", "streams[1]", True),
    ],
)  # fmt: skip
def test_hold_knows_a_stream_by_its_variable(schedule: str, name: str, held: bool) -> None:
    gpu = Machine(schedule)
    gpu.put(gpu.named(name), "work")
    assert gpu.ran == ([] if held else ["work"])


def test_hold_says_so_where_there_is_no_such_stream() -> None:
    gpu = Machine("hold:copy")
    gpu.named("loader")
    text = gpu.schedule.remark(gpu.streams())
    assert "hold:copy held nothing" in text
    assert "default, loader" in text
    gpu.named("copy")
    assert gpu.schedule.remark(gpu.streams()) == ""
    assert parse("late").remark(gpu.streams()) == ""


@pytest.mark.parametrize("text", ["", "later", "late:1", "hold", "hold:", "random", "random:x"])
def test_an_unknown_schedule_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(UsageError, match="choose one of program, late, hold:STREAM, random:SEED"):
        parse(text)


@pytest.mark.parametrize("schedule", ["late", "hold:default", "random:4"])
def test_deep_queues_need_no_recursion_and_no_quadratic_work(schedule: str) -> None:
    gpu = Machine(schedule)
    default, side = gpu.devices[0].default, gpu.named("side")
    steps, limit = 0, sys.getrecursionlimit()

    def count() -> None:
        nonlocal steps
        steps += 1
        assert len(str(steps)) < limit

    pairs = 25_000  # 100,000 tasks with the events and waits between them
    for _ in range(pairs):
        gpu.submit(default, count)
        gpu.wait(side, gpu.event(default))
        gpu.submit(side, count)
    gpu.sync_stream(side)
    assert steps == 2 * pairs
    gpu.sync_device(0)
    assert default.tail is None
    assert not default.queue
    assert not side.queue


def test_tasks_that_have_run_keep_nothing_alive() -> None:
    gpu = Machine("late")
    default, side = gpu.devices[0].default, gpu.named("side")
    event = gpu.new_event()
    for _ in range(2000):
        gpu.put(default, "work")
        gpu.record(event, default)
        gpu.wait(side, event)
    gpu.sync_device(0)
    gc.collect()
    alive = [found for found in gc.get_objects() if type(found) is Task]
    assert len([task for task in alive if task.stream in (default, side)]) <= 1
