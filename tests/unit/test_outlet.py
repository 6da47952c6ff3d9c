"""The way out for records and the lock of a recording, compiled and in Python."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from streamsan.model import records as r
from streamsan.record import _core, _portable
from streamsan.virtual.monitor import Monitor

needs_compiled = pytest.mark.skipif(not _core.compiled(), reason="the core is not compiled here")


@pytest.fixture(params=["portable", pytest.param("compiled", marks=needs_compiled)])
def outlet(request: pytest.FixtureRequest) -> Any:
    """One of the two."""
    return (_portable.Outlet if request.param == "portable" else _core.Outlet)()


def note(text: str) -> r.Note:
    return r.Note("info", text)


def test_records_come_out_one_after_the_other(outlet: Any) -> None:
    told: list[str] = []

    def sink(record: r.Note) -> None:
        assert outlet.mine
        told.append(f"begin {record.text}")
        if record.text == "outer":
            outlet.emit(note("inner"))
            outlet.emit(note("last"))
        told.append(f"end {record.text}")

    outlet.emit(note("dropped"))
    outlet.sink = sink
    assert outlet.sink is sink
    outlet.emit(note("outer"))
    outlet.sink = None
    outlet.emit(note("dropped"))
    names = ("outer", "inner", "last")
    assert told == [f"{what} {name}" for name in names for what in ("begin", "end")]
    assert isinstance(outlet, Monitor)
    assert not outlet.mine


def test_an_error_of_the_sink_is_the_callers_and_leaves_all_in_order(outlet: Any) -> None:
    told: list[str] = []

    def sink(record: r.Note) -> None:
        if record.text == "bad":
            raise OSError("full")
        told.append(record.text)

    outlet.sink = sink
    with pytest.raises(OSError, match="full"):
        outlet.emit(note("bad"))
    outlet.emit(note("good"))
    assert told == ["good"]
    assert not outlet.mine


def test_it_is_taken_as_often_as_it_is_left(outlet: Any) -> None:
    with outlet as entered:
        assert entered is outlet
        with outlet:
            assert outlet.mine
        assert outlet.mine
    assert not outlet.mine


def test_work_for_later_waits_for_the_holder(outlet: Any) -> None:
    done: list[str] = []
    outlet.later(lambda: done.append("at once"))
    with outlet:
        with outlet:
            outlet.later(lambda: done.append("later"))
            outlet.later(lambda: outlet.later(lambda: done.append("after that")))
        assert done == ["at once"]
    assert done == ["at once", "later", "after that"]


def test_an_error_of_work_for_later_leaves_the_lock_free(outlet: Any) -> None:
    def fail() -> None:
        raise ValueError("mine")

    def enter_and_leave() -> None:
        with outlet:
            outlet.later(fail)

    with pytest.raises(ValueError, match="mine"):
        enter_and_leave()
    assert not outlet.mine
    with outlet:
        pass


def test_one_thread_at_a_time(outlet: Any) -> None:
    told: list[int] = []
    inside: list[int] = []

    def sink(_: r.Note) -> None:
        inside.append(1)
        told.append(sum(inside))
        inside.pop()

    def work() -> None:
        for _ in range(300):
            outlet.emit(note("x"))
            with outlet:
                outlet.sequence += 1

    outlet.sink = sink
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [1] * 1200
    assert outlet.sequence == 1200


def test_others_get_it_while_it_is_released(outlet: Any) -> None:
    got: list[bool] = []

    def work() -> None:
        with outlet:
            got.append(outlet.mine)

    with outlet, outlet:
        with outlet.released():
            assert not outlet.mine
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert outlet.mine
    assert got == [True]
    assert not outlet.mine


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_afresh(outlet: Any) -> None:
    outlet.sequence = 5
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with outlet:
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:  # where the thread that holds it is not
        outlet.after_fork()
        with outlet:
            os._exit(not outlet.mine or outlet.sequence != 5)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_every_thread_that_waits_gets_it(outlet: Any) -> None:
    got: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            with outlet:
                got.append(number)
                with outlet.released():  # to whoever waits
                    pass
                assert outlet.mine

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    with outlet:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(got) == sorted([*range(6)] * 50)
    assert not outlet.mine


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_threads_that_waited_when_it_forked_are_not_waited_for(outlet: Any) -> None:
    def wait() -> None:
        with outlet:
            pass

    with outlet:
        waiting = threading.Thread(target=wait)
        waiting.start()
        child = os.fork()
        if not child:
            outlet.after_fork()
            other = threading.Thread(target=wait)
            with outlet:
                other.start()
            other.join(30)
            os._exit(other.is_alive() or outlet.mine)
    waiting.join()
    assert os.waitpid(child, 0)[1] == 0
