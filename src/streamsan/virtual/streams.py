"""Streams and events of the virtual GPU: queues of deferred work and the points they wait for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

Work = Callable[[], None]


class Outside(Protocol):
    """What a task waits for that does not happen on this machine: another process."""

    @property
    def done(self) -> bool:
        """Whether it has happened. Asked often."""

    def wait(self) -> None:
        """Let a moment pass, in which it may happen."""


class Task:
    """One entry of a stream's queue: work to run once, after the tasks it depends on and, where it
    has one, after what happens `outside`.
    """

    __slots__ = ("depends", "done", "outside", "stream", "work")

    def __init__(
        self,
        stream: Stream,
        work: Work | None,
        depends: tuple[Task, ...],
        outside: Outside | None = None,
    ) -> None:
        self.stream = stream
        self.work = work
        self.depends = depends
        self.outside = outside
        self.done = False

    @property
    def ready(self) -> bool:
        """Whether all that this task waits for has run."""
        return all(task.done for task in self.depends) and self.free

    @property
    def free(self) -> bool:
        """Whether what it waits for outside has happened."""
        return self.outside is None or self.outside.done


class Stream:
    """A native stream: a queue of one device. `key` is (device, handle); `name` may be empty.

    `timeline` is the number under which the recorder knows it.
    """

    __slots__ = (
        "blocking",
        "capture",
        "default",
        "device",
        "handle",
        "name",
        "priority",
        "queue",
        "tail",
        "timeline",
    )

    def __init__(
        self,
        device: int,
        handle: int,
        *,
        priority: int = 0,
        blocking: bool = False,
        default: bool = False,
        name: str = "",
    ) -> None:
        self.device = device
        self.handle = handle
        self.priority = priority
        self.blocking = blocking
        self.default = default
        self.name = name
        self.timeline = -1
        self.capture: object | None = None
        self.queue: deque[Task] = deque()
        self.tail: Task | None = None

    def push(
        self, work: Work | None, depends: Iterable[Task | None], outside: Outside | None = None
    ) -> Task:
        """Append a task that runs after `depends`; entries that are None or done do not count."""
        waits = tuple(task for task in depends if task is not None and not task.done)
        task = Task(self, work, waits, outside)
        self.queue.append(task)
        self.tail = task
        return task

    @property
    def idle(self) -> bool:
        """Whether all work enqueued so far has run (what a query answers)."""
        return not self.queue

    def step(self) -> bool:
        """Run the first task if it is ready; whether there was one."""
        if not self.queue or not self.queue[0].ready:
            return False
        task = self.queue.popleft()
        try:
            if task.work is not None:
                task.work()
        finally:
            task.done = True
            task.work = None
            task.depends = ()
            task.outside = None
            if self.tail is task:
                self.tail = None
        return True


class Event:
    """A point of a stream. A new record replaces the one before (rule E1).

    `capture` is the graph capture that holds the latest record, if one does.
    """

    __slots__ = (
        "__weakref__",
        "capture",
        "number",
        "recorded",
        "stream",
        "task",
        "time",
        "version",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.recorded = False
        self.stream: Stream | None = None
        self.task: Task | None = None
        self.capture: object | None = None
        self.version = 0
        self.time = 0.0

    @property
    def done(self) -> bool:
        """Whether the latest record has been reached; true where there is none."""
        return self.task is None or self.task.done

    def reached(self, version: int) -> Work:
        """The work that notes the time of a record, unless a later one has replaced it."""

        def note() -> None:
            if self.version == version:
                self.time = time.perf_counter()

        return note


def advance(target: Task) -> Task | None:
    """Run `target` and no more than what must run before it, as far as nothing outside of the
    machine has to be waited for. Returns the task that waits for that, or None at the end.
    """
    stack = [target]
    while stack:
        task = stack[-1]
        if task.done:
            stack.pop()
            continue
        head = task.stream.queue[0]
        waiting = next((dep for dep in head.depends if not dep.done), None)
        if waiting is not None:
            stack.append(waiting)
        elif not task.stream.step():
            return head
    return None


def drain(target: Task) -> None:
    """Run `target` and no more than what must run before it."""
    while (held := advance(target)) is not None:
        if held.outside is not None:
            held.outside.wait()
