"""Programs without an end: what the checker holds stops growing, and it says what it gave up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pytest

from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.model.findings import Report
from streamsan.order import _objects
from tests.hard import endless
from tests.hard.weigh import weigh

MIB = 1 << 20


def run(program: Iterator[r.AnyRecord], *lengths: int) -> tuple[list[int], Report]:
    """What a checker weighs after so many records, and its report."""
    checker = Checker()
    weights, done = [], 0
    for length in lengths:
        for record in islice(program, length - done):
            checker.feed(record)
        done = length
        weights.append(weigh(checker))
    return weights, checker.report()


def _name(value: object) -> str | None:
    function = value.func if isinstance(value, partial) else value
    return getattr(function, "__name__", None)


@pytest.mark.parametrize(
    ("program", "warm", "most"),
    [
        (partial(endless.ring_of_streams, 100), 2_000, 3 * MIB),
        (partial(endless.live_blocks, 10_000), 40_000, 30 * MIB),
        (endless.constant, 1_000, MIB),
        (endless.single_bytes, 40_000, 30 * MIB),
        (endless.scattered_bytes, 40_000, 30 * MIB),
        (endless.strided_views, 1_000, 2 * MIB),
        (endless.one_event, 1_000, MIB),
        (endless.new_events, 20_000, MIB),
        (endless.futures, 12_000, 2 * MIB),
        (endless.graphs, 1_000, MIB),
        (endless.many_tensors, 10, 20 * MIB),
        (endless.many_stacks, 9_000, 3 * MIB),
    ],
    ids=_name,
)
def test_what_is_held_stops_growing(
    program: Callable[[], Iterator[r.AnyRecord]], warm: int, most: int
) -> None:
    weights, report = run(program(), warm, 2 * warm)
    assert weights[1] < most
    assert weights[1] < 1.3 * weights[0] + 100_000
    assert report.verdict == "clean"


@pytest.mark.parametrize(
    "program", [endless.threads_that_come_and_go, endless.threads_never_joined]
)
def test_threads_leave_their_names_and_nothing_else(
    program: Callable[[], Iterator[r.AnyRecord]],
) -> None:
    weights, report = run(program(), 12_000, 24_000)
    threads = 12_000 // (6 if program is endless.threads_that_come_and_go else 4)
    assert weights[1] - weights[0] < 400 * threads
    assert report.verdict == "clean"


def test_a_block_forgets_the_threads_that_used_it_and_are_gone() -> None:
    checker = Checker()
    for record in islice(endless.threads_of_one_block(), 12_000):
        checker.feed(record)
    (block,) = checker._lifetimes._blocks.values()
    assert len(block.threads) < 200
    checker.feed(r.Free(0, endless.MAIN, 0))
    assert checker.report().verdict == "clean"


def test_events_that_nobody_destroys_keep_no_clock_of_their_own() -> None:
    weights, report = run(endless.kept_events(), 12_500, 25_000)
    assert weights[1] - weights[0] < 800 * 12_500 / 3
    assert report.verdict == "clean"


def test_an_access_of_a_retired_thread_is_no_race() -> None:
    weights, report = run(endless.threads_that_come_and_go(), 3_000)
    assert weights[0] < MIB
    assert not report.races
    assert report.summary.blind_spots == []


def test_a_thread_that_lags_behind_gives_order_up_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_objects, "_ENTRIES", 1000)
    weights, report = run(endless.futures(idle=True), 20_000, 40_000)
    assert weights[1] < 1.3 * weights[0] + 100_000
    assert any("count as handed over at once" in text for text in report.summary.blind_spots)


@pytest.mark.parametrize("program", [endless.single_bytes, endless.scattered_bytes])
def test_history_given_up_is_told(program: Callable[[], Iterator[r.AnyRecord]]) -> None:
    _, report = run(program(), 40_000)
    assert any("very many small pieces" in text for text in report.summary.blind_spots)


def test_what_was_used_last_is_kept_longest() -> None:
    checker = Checker()
    for record in islice(endless.single_bytes(), 40_000):
        checker.feed(record)
    assert isinstance(record, r.Operation)
    late, early = record.accesses[0].address, 2
    checker.feed(r.StreamDef(2, 0, 2, False, False, "reader", r.NONE))
    checker.feed(endless.touch(50_000, 2, early, 1))
    assert not checker.has_races
    checker.feed(endless.touch(50_001, 2, late, 1))
    assert checker.has_races
