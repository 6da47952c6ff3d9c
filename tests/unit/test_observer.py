"""The recording side by itself: numbers, definitions before uses, and errors that stay inside."""

from __future__ import annotations

import os
import threading

import pytest

from streamsan.model import records as r
from streamsan.record._observer import Observer

HEADER = r.Header("virtual", {}, (), {})


class Run:
    """A recording, and what came out of it."""

    def __init__(self) -> None:
        self.records: list[r.AnyRecord] = []
        self.observer = Observer()
        self.observer.begin(self.records.append, HEADER, ())

    def of(self, kind: type) -> list[r.AnyRecord]:
        """The records of a kind."""
        return [record for record in self.records if isinstance(record, kind)]

    def notes(self) -> list[str]:
        """The texts of all notes."""
        return [record.text for record in self.records if isinstance(record, r.Note)]


@pytest.fixture
def run() -> Run:
    """A recording that has begun."""
    return Run()


def operate(observer: Observer, name: str = "op") -> None:
    """Report an operation of the calling thread."""
    observer.operation(int(r.OpKind.HOST), name, observer.thread(), ())


def test_a_recording_from_begin_to_end(run: Run) -> None:
    operate(run.observer)
    run.observer.end(3)
    operate(run.observer)
    names = [type(record).__name__ for record in run.records]
    assert list(dict.fromkeys(names)) == [
        "Header", "ThreadDef", "SiteDef", "StackDef", "Operation", "End",
    ]  # fmt: skip
    assert names.count("Operation") == 1
    (end,) = run.of(r.End)
    assert isinstance(end, r.End)
    assert (end.status, end.seconds >= 0) == (3, True)
    assert not run.observer.recording


def test_a_stack_has_one_number_and_no_frames_of_ours(run: Run) -> None:
    numbers = {run.observer.stack() for _ in range(3)}
    assert len(numbers) == 1
    assert run.observer.stack() not in numbers
    sites = {site.site: site for site in run.records if isinstance(site, r.SiteDef)}
    stacks = [stack for stack in run.records if isinstance(stack, r.StackDef)]
    assert {sites[stack.sites[0]].file for stack in stacks} == {__file__}
    assert not [site for site in sites.values() if "streamsan/record" in site.file]
    assert all(run.observer.is_user_stack(stack.stack) for stack in stacks)


def test_two_calls_of_a_line_are_two_stacks_and_one_site(run: Run) -> None:
    first, second = run.observer.stack(), run.observer.stack()
    stacks = [stack for stack in run.records if isinstance(stack, r.StackDef)]
    assert [stack.stack for stack in stacks] == [first, second]
    assert stacks[0].sites == stacks[1].sites


def test_a_thread_comes_after_what_its_parent_had_done(run: Run) -> None:
    thread = threading.Thread(target=operate, args=(run.observer,), name="worker")
    run.observer.starting(thread)
    thread.start()
    thread.join()
    main, worker = (t for t in run.records if isinstance(t, r.ThreadDef))
    assert (worker.name, worker.parent) == ("worker", main.timeline)
    assert worker.stack != r.NONE


def test_a_stream_is_known_by_its_name_in_the_next_recording(run: Run) -> None:
    side = run.observer.stream(0, 7, blocking=False, default=False, name="")
    run.observer.end(0)
    later: list[r.AnyRecord] = []
    run.observer.begin(later.append, HEADER, ())
    (stream,) = (s for s in later if isinstance(s, r.StreamDef))
    assert (stream.timeline, stream.name, stream.stack) == (side, "side", r.NONE)


def test_what_a_record_brings_about_follows_it(run: Run) -> None:
    seen: list[str] = []

    def sink(record: r.AnyRecord) -> None:
        if isinstance(record, r.Note):
            seen.append(f"begin {record.text}")
            if record.text == "outer":
                run.observer.note("info", "inner")
            seen.append(f"end {record.text}")

    run.observer.end(0)
    run.observer.begin(sink, HEADER, ())
    run.observer.note("info", "outer")
    assert seen == ["begin outer", "end outer", "begin inner", "end inner"]


def test_an_error_is_told_once(run: Run) -> None:
    for _ in range(3):
        run.observer.operation("no kind", "x", "no timeline", None)  # type: ignore[arg-type]
        run.observer.internal_error(ValueError("mine"))
    assert run.notes() == ["ValueError: mine"]


def test_errors_beyond_a_number_are_told_as_one(run: Run) -> None:
    for number in range(50):
        run.observer.internal_error(ValueError(number))
    assert len(run.notes()) == 21
    assert run.notes()[-1] == "more than 20 different errors: the others are not told"


def test_an_error_of_the_sink_stays_inside_and_is_told_later(run: Run) -> None:
    told: list[r.AnyRecord] = []

    def sink(record: r.AnyRecord) -> None:
        if fails:
            raise OSError("full")
        told.append(record)

    run.observer.end(0)
    fails = False
    run.observer.begin(sink, HEADER, ())
    fails = True
    operate(run.observer)
    fails = False
    run.observer.end(0)
    notes = [record.text for record in told if isinstance(record, r.Note)]
    assert len(notes) == 1
    assert notes[0].startswith("OSError: full")


def test_said_once(run: Run) -> None:
    for _ in range(2):
        run.observer.note_once("blind-spot", "this")
        run.observer.note("blind-spot", "that")
    assert run.notes() == ["this", "that", "that"]


def test_used_outlasts_a_recording(run: Run) -> None:
    assert not run.observer.used
    operate(run.observer)
    run.observer.end(0)
    run.observer.begin(run.records.append, HEADER, ())
    assert run.observer.used


def test_numbers_are_not_used_twice(run: Run) -> None:
    assert len({run.observer.next_number() for _ in range(100)}) == 100


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_says_nothing(run: Run) -> None:
    said = len(run.records)
    child = os.fork()
    if not child:
        run.observer.abandon()
        operate(run.observer)
        run.observer.note("info", "x")
        os._exit(len(run.records) != said)
    assert os.waitpid(child, 0)[1] == 0
