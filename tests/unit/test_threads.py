"""Hand-overs between host threads are reported, and nothing else changes (rules T1, T2)."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import copy
import os
import queue
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from streamsan.record._threads import Callbacks, HostThreads

Clock = dict[threading.Thread, int]


class Checker:
    """A happens-before checker over hand-overs: vector clocks of threads and objects."""

    def __init__(self) -> None:
        self.guard = _thread.allocate_lock()
        self.threads: dict[threading.Thread, Clock] = defaultdict(dict)
        self.objects: dict[int, Clock] = defaultdict(dict)
        self.points: dict[str, tuple[threading.Thread, int, Clock]] = {}
        self.log: list[str] = []
        self.errors: list[Exception] = []

    def release(self, number: int) -> None:
        with self.guard:
            self.log.append("release")
            self.join(self.objects[number], self.here())

    def acquire(self, number: int) -> None:
        with self.guard:
            self.log.append("acquire")
            self.join(self.here(), self.objects[number])

    def here(self) -> Clock:
        return self.threads[threading.current_thread()]

    @staticmethod
    def join(into: Clock, other: Clock) -> None:
        for thread, count in other.items():
            into[thread] = max(into.get(thread, 0), count)

    def point(self, name: str) -> None:
        """Mark a point of the calling thread."""
        with self.guard:
            me, clock = threading.current_thread(), self.here()
            clock[me] = clock.get(me, 0) + 1
            self.points[name] = me, clock[me], dict(clock)

    def ordered(self, first: str, second: str) -> bool:
        """Whether one marked point happens before the other."""
        thread, count, _ = self.points[first]
        return self.points[second][2].get(thread, 0) >= count


@pytest.fixture
def checker() -> Iterator[Checker]:
    checker = Checker()
    threads = HostThreads(
        Callbacks(
            release=checker.release,
            acquire=checker.acquire,
            started=lambda thread: checker.log.append(f"started {thread.name}"),
            before_run=lambda thread: checker.log.append(f"before {thread.name}"),
            after_run=lambda thread: checker.log.append(f"after {thread.name}"),
            error=checker.errors.append,
        )
    )
    threads.install()
    try:
        yield checker
    finally:
        threads.uninstall()
    assert not checker.errors


def spawn(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def test_start_and_join_order_and_nothing_orders_concurrent_threads(checker: Checker) -> None:
    checker.point("before")
    threads = [spawn(lambda n=name: checker.point(n)) for name in "ab"]  # type: ignore[misc]
    checker.point("between")
    for thread in threads:
        thread.join()
    checker.point("after")
    assert checker.ordered("before", "a")
    assert checker.ordered("a", "after")
    assert not checker.ordered("a", "b")
    assert not checker.ordered("a", "between")
    assert not checker.ordered("between", "a")


def test_timed_out_join_gives_no_order_and_is_alive_does(checker: Checker) -> None:
    gate = _thread.allocate_lock()
    gate.acquire()

    def wait() -> None:
        checker.point("early")
        gate.acquire()

    thread = spawn(wait)
    thread.join(0.01)
    checker.point("timed out")
    gate.release()
    while thread.is_alive():
        time.sleep(0.001)
    checker.point("ended")
    assert not checker.ordered("early", "timed out")
    assert checker.ordered("early", "ended")


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Condition", "Semaphore"])
def test_locks_order_who_takes_them_next(checker: Checker, kind: str) -> None:
    lock = getattr(threading, kind)()
    raw = _thread.allocate_lock()  # orders the two in time, unseen
    raw.acquire()

    def first() -> None:
        with lock:
            checker.point("first")
        raw.release()

    thread = spawn(first)
    raw.acquire()
    checker.point("unordered")
    with lock:
        checker.point("second")
    thread.join()
    assert not checker.ordered("first", "unordered")
    assert checker.ordered("first", "second")


def test_failed_attempt_to_take_a_lock_gives_no_order(checker: Checker) -> None:
    lock = threading.Lock()
    raw = _thread.allocate_lock()
    raw.acquire()

    def hold() -> None:
        with lock:
            checker.point("held")
            raw.acquire()

    thread = spawn(hold)
    while not lock.locked():
        time.sleep(0.001)
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=0.01)
    checker.point("failed")
    raw.release()
    thread.join()
    assert not checker.ordered("held", "failed")


def test_event_orders_waiters_and_pollers(checker: Checker) -> None:
    event = threading.Event()

    def set_it() -> None:
        checker.point("set")
        event.set()

    def poll() -> None:
        while not event.is_set():
            time.sleep(0.0005)
        checker.point("polled")

    def wait() -> None:
        event.wait()
        checker.point("waited")

    threads = [spawn(poll), spawn(wait), spawn(set_it)]
    for thread in threads:
        thread.join()
    assert checker.ordered("set", "polled")
    assert checker.ordered("set", "waited")


def test_barrier_orders_all_before_with_all_after(checker: Checker) -> None:
    barrier = threading.Barrier(3)

    def work(name: str) -> None:
        checker.point(f"{name} before")
        barrier.wait()
        checker.point(f"{name} after")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(checker.ordered(f"{x} before", f"{y} after") for x in "abc" for y in "abc")


@pytest.mark.parametrize("kind", ["SimpleQueue", "Queue", "LifoQueue", "PriorityQueue"])
def test_queues_order_items_under_load(checker: Checker, kind: str) -> None:
    channel = getattr(queue, kind)()
    count, taken = 50, []

    def produce(name: int) -> None:
        for index in range(count):
            checker.point(f"put {name} {index}")
            channel.put((name, index))

    def consume() -> None:
        for _ in range(count):
            name, index = channel.get(timeout=20)
            checker.point(f"got {name} {index}")
            taken.append((name, index))

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(2)]
    threads += [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 2 * count
    assert all(checker.ordered(f"put {n} {i}", f"got {n} {i}") for n, i in taken)


def test_condition_over_a_reentrant_lock_taken_twice(checker: Checker) -> None:
    condition = threading.Condition()
    ready: list[int] = []

    def waiter() -> None:
        with condition, condition:
            assert condition.wait_for(lambda: ready, timeout=20)
            checker.point("woken")

    thread = spawn(waiter)
    time.sleep(0.01)
    with condition:
        checker.point("notify")
        ready.append(1)
        condition.notify_all()
    thread.join()
    assert checker.ordered("notify", "woken")


def test_executor_orders_submission_work_and_result(checker: Checker) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        futures = []
        for index in range(20):
            checker.point(f"submit {index}")
            futures.append(executor.submit(checker.point, f"work {index}"))
        for index, future in enumerate(futures):
            future.result()
            checker.point(f"result {index}")
    for index in range(20):
        assert checker.ordered(f"submit {index}", f"work {index}")
        assert checker.ordered(f"work {index}", f"result {index}")


def test_event_loop_orders_calls_from_other_threads(checker: Checker) -> None:
    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def arrive() -> None:
            checker.point("arrived")
            done.set()

        def call() -> None:
            checker.point("called")
            loop.call_soon_threadsafe(arrive)

        thread = spawn(call)
        await done.wait()
        thread.join()

    asyncio.run(main())
    assert checker.ordered("called", "arrived")


def test_callbacks_surround_every_kind_of_run(checker: Checker) -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            checker.log.append(f"run {self.name}")

    for thread in (
        Own(name="own"),
        threading.Timer(0, lambda: checker.log.append("run timer")),
        threading.Thread(target=lambda: checker.log.append("run plain"), name="plain"),
    ):
        if isinstance(thread, threading.Timer):
            thread.name = "timer"
        thread.start()
        thread.join()
        assert "run" not in vars(thread)
    told = [entry for entry in checker.log if " " in entry]
    expected = [f"{what} {name}" for name in ("own", "timer", "plain") for what in PHASES]
    assert told == expected


PHASES = ("started", "before", "run", "after")


def test_run_set_on_the_instance_is_called(checker: Checker) -> None:
    thread = threading.Thread(name="patched")
    own = lambda: checker.point("own run")  # noqa: E731 - the instance must keep this object
    thread.run = own  # type: ignore[method-assign]
    thread.start()
    thread.join()
    assert "own run" in checker.points
    assert thread.run is own


def test_single_thread_reports_nothing(checker: Checker) -> None:
    if threading.active_count() > 1:
        pytest.skip("another thread is at work in this process")
    lock, channel = threading.RLock(), queue.Queue[int]()
    with lock:
        channel.put(1)
    assert not checker.log


def test_exception_and_flags_of_threads_stay(
    checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def fail() -> None:
        raise KeyError("mine")

    thread = threading.Thread(target=fail, name="failing", daemon=True)
    thread.start()
    thread.join()
    assert [(args.exc_type, args.thread) for args in seen] == [(KeyError, thread)]
    assert (thread.name, thread.daemon) == ("failing", True)
    assert "after failing" in checker.log
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        thread.start()
    with pytest.raises(RuntimeError, match="cannot join thread before it is started"):
        threading.Thread().join()


def test_current_thread_of_a_foreign_thread_is_one_dummy(checker: Checker) -> None:
    spawn(lambda: None).join()
    names: list[str] = []
    done = _thread.allocate_lock()
    done.acquire()

    def foreign() -> None:
        checker.point("foreign")
        names.extend(threading.current_thread().name for _ in range(2))
        done.release()

    _thread.start_new_thread(foreign, ())
    done.acquire()
    assert names[0] == names[1]
    assert names[0] == checker.points["foreign"][0].name


def test_stand_ins_behave_as_the_originals(checker: Checker) -> None:
    raw, raw_queue = _thread.allocate_lock(), queue.SimpleQueue.__mro__[1]()
    for lock, kind in ((threading.Lock(), _thread.LockType), (threading.RLock(), _thread.RLock)):
        assert isinstance(lock, kind)
        assert isinstance(lock, type(lock))
        assert weakref.ref(lock)() is lock
        with pytest.raises(TypeError, match="cannot pickle"):
            copy.deepcopy(lock)
        with pytest.raises(RuntimeError, match="release"):
            lock.release()
        with pytest.raises(ValueError, match="timeout"):
            lock.acquire(blocking=False, timeout=1)
        assert repr(lock).startswith("<unlocked")
        with lock:
            assert repr(lock).startswith("<locked")
        lock.acquire()
        lock._at_fork_reinit()  # type: ignore[union-attr]
        assert lock.acquire(blocking=False)
    assert isinstance(raw, type(threading.Lock()))
    assert isinstance(raw_queue, queue.SimpleQueue)
    assert not isinstance(3, type(threading.Lock()))
    assert not checker.errors


def test_subclass_of_a_stand_in_is_a_class_of_its_own(checker: Checker) -> None:
    class Channel(queue.SimpleQueue[int]):
        pass

    channel = Channel()
    channel.put_nowait(1)
    assert (channel.get_nowait(), channel.empty()) == (1, True)
    assert isinstance(channel, queue.SimpleQueue)
    assert not isinstance(queue.SimpleQueue(), Channel)
    with pytest.raises(queue.Empty):
        channel.get(timeout=0.001)
    assert not checker.errors


def test_uninstall_puts_everything_back_and_locks_go_on() -> None:
    names: list[tuple[object, str]] = [(threading, "Lock"), (threading, "RLock")]
    names += [(queue, "SimpleQueue")]
    names += [(threading.Thread, n) for n in ("__init__", "start", "join", "is_alive")]
    names += [(threading.Event, n) for n in ("set", "is_set")]
    before = [vars(owner)[name] for owner, name in names]
    log: list[int] = []
    threads = HostThreads(Callbacks(log.append, log.append))
    threads.install()
    try:
        assert all(vars(o)[n] is not was for (o, n), was in zip(names, before))
        with pytest.raises(RuntimeError, match="already"):
            HostThreads(Callbacks(log.append, log.append)).install()
        condition = threading.Condition()
    finally:
        threads.uninstall()
    assert [vars(owner)[name] for owner, name in names] == before
    log.clear()
    with condition:
        spawn(lambda: None).join()
    assert not log


def test_failing_callback_is_told_once_and_the_program_goes_on() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    errors: list[Exception] = []
    threads = HostThreads(Callbacks(fail, fail, fail, fail, fail, errors.append))
    threads.install()
    try:
        done: list[int] = []
        spawn(lambda: done.append(1)).join()
    finally:
        threads.uninstall()
    assert done == [1]
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_locks_taken_by_a_callback_are_not_reported() -> None:
    threads: HostThreads
    told: list[int] = []

    def tell(number: int) -> None:
        with lock:
            told.append(number)

    threads = HostThreads(Callbacks(tell, tell))
    threads.install()
    try:
        lock = threading.Lock()
        spawn(lambda: None).join()
    finally:
        threads.uninstall()
    assert len(told) == 4  # start and join, each given and taken
    assert len(set(told)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_forked_child_reports_nothing(checker: Checker) -> None:
    spawn(lambda: None).join()
    lock = threading.Lock()
    told = len(checker.log)
    child = os.fork()
    if child == 0:
        with lock:
            spawn(lambda: None).join()
        os._exit(0 if len(checker.log) == told else 1)
    assert os.waitpid(child, 0)[1] == 0
