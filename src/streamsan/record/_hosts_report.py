"""Hand-overs between host threads: what tells the recorder of them (rule T1).

One `Reporter` serves the whole process, since what it listens to is patched for the whole process
and the locks it handed out outlive a recording.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


def _ignore(_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Callbacks:
    """What a recorder wants to hear, each in the thread that it is about.

    `release(object)`: this thread is about to hand over through a host object; `acquire(object)`:
    it has just taken what was handed over. `started(thread)`: it is about to start `thread`.
    `before_run(thread)` and `after_run(thread)`: the new thread is about to enter, and has left,
    its ``run``. `error(exception)`: another callback raised; told once. `ended(thread)`: it
    has handed over to whoever joins it, and does no more.
    """

    release: Callable[[int], None]
    acquire: Callable[[int], None]
    started: Callable[[threading.Thread], None] = _ignore
    before_run: Callable[[threading.Thread], None] = _ignore
    after_run: Callable[[threading.Thread], None] = _ignore
    error: Callable[[Exception], None] = _ignore
    ended: Callable[[threading.Thread], None] = _ignore


_numbers = itertools.count(1)


class _Here(threading.local):
    """What the reporter knows of the calling thread; `inside`: it runs a callback."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.inside = False


class Reporter:
    """Calls the callbacks of the recording at work.

    `on` says whether hand-overs matter: a recording is at work, in this process, and there has
    been a second thread. What was done before that, the start of the second thread orders.
    """

    def __init__(self) -> None:
        self.on = False
        self._callbacks: Callbacks | None = None
        self._process = 0
        self._here = _Here()
        self._failed = False

    @property
    def recording(self) -> bool:
        """Whether a recording is at work, in this process: not in a child forked from it.

        A fork hook would come too late: ``threading`` takes locks in the child before it.
        """
        return self._callbacks is not None and self._process == os.getpid()

    @property
    def thread(self) -> int:
        """A number for the calling thread, which unlike its ident no later thread gets."""
        return self._here.number

    def begin(self, callbacks: Callbacks) -> None:
        """Start to call `callbacks`."""
        self._failed = False
        self._process = os.getpid()
        self._callbacks = callbacks

    def end(self) -> None:
        """Call nothing any more."""
        self.on = False
        self._callbacks = None

    def call(self, name: str, argument: object) -> None:
        """Call one callback. It cannot raise into the program.

        What a callback does by itself, such as to take a lock, is not reported.
        """
        callbacks, here = self._callbacks, self._here
        if callbacks is None or here.inside:
            return
        if not self.recording:
            self.end()
            return
        here.inside = True
        try:
            getattr(callbacks, name)(argument)
        except Exception as error:
            self._tell(callbacks, error)
        finally:
            here.inside = False

    def _tell(self, callbacks: Callbacks, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with suppress(Exception):
                callbacks.error(error)


REPORTER = Reporter()
"""The reporter of this process."""


class Handover:
    """What passes through one host object. `giver` is the thread that last gave (0: none yet).

    Its number is unique over the process, which ``id()`` is not.
    """

    __slots__ = ("giver", "number")

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.giver = 0

    def give(self) -> None:
        """Report that this thread hands over; to be called just before it does."""
        if REPORTER.on:
            self.giver = REPORTER.thread
            REPORTER.call("release", self.number)

    def take(self) -> None:
        """Report that this thread has taken what was handed over so far."""
        if REPORTER.on and self.giver:
            REPORTER.call("acquire", self.number)
