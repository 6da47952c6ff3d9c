"""Runs commands on labelled programs without paying for an import of torch each.

A server process imports torch once; every program then has a fresh process forked from it, which
has not touched a device yet.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic

from tools.labels import Case
from tools.score import Outcome

Main = Callable[[list[str]], int]
"""The entry of a command, at the top of a module: it takes its arguments and returns its status."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "streamsan.commands", "streamsan.virtual.face"])
_ERROR = 2000  # characters of a failure that are worth telling, the last ones


@dataclass(frozen=True)
class Task:
    """A command with `options`, to run on one program; it takes ``--output FILE`` as well."""

    case: Case
    main: Main
    options: tuple[str, ...] = ()


class _Run:
    """A task at work in a process of its own."""

    def __init__(self, task: Task, seconds: float) -> None:
        self.task = task
        self._folder = tempfile.TemporaryDirectory()
        self._report = Path(self._folder.name) / "report.json"
        self._printed = Path(self._folder.name) / "printed.txt"
        words = [*task.options, "--format", "json", "--output", str(self._report)]
        words.append(str(task.case.path))
        self.process: BaseProcess = _CONTEXT.Process(
            target=_command, args=(task.main, words, str(self._printed))
        )
        self._seconds = seconds
        self.process.start()
        self.end = monotonic() + seconds

    def is_over(self) -> bool:
        """Whether the process has ended, or used up its time."""
        return self.process.exitcode is not None or monotonic() > self.end

    def outcome(self) -> Outcome:
        """What came of it; ends a process that still runs."""
        with self._folder:
            status = self.process.exitcode
            if status is None:
                self.process.kill()
                self.process.join()
                return Outcome(-1, None, f"no end within {self._seconds:.0f} s")
            if not self._report.exists():
                printed = self._printed.read_text(encoding="utf-8", errors="replace")
                return Outcome(status, None, printed[-_ERROR:])
            return Outcome(status, json.loads(self._report.read_text(encoding="utf-8")))


def run_all(tasks: Iterable[Task], jobs: int, seconds: float) -> Iterator[tuple[Task, Outcome]]:
    """Run tasks, `jobs` at a time and each for at most `seconds`, and yield each as it ends."""
    waiting = iter(tasks)
    running: list[_Run] = []
    while True:
        running += [_Run(task, seconds) for task in islice(waiting, jobs - len(running))]
        if not running:
            return
        left = min(run.end for run in running) - monotonic()
        wait([run.process.sentinel for run in running], max(left, 0.0))
        ended = [run for run in running if run.is_over()]
        running = [run for run in running if run not in ended]
        for run in ended:
            yield run.task, run.outcome()


def run_one(task: Task, seconds: float) -> Outcome:
    """Run one task."""
    return next(run_all([task], 1, seconds))[1]


def streamsan(words: Sequence[str]) -> int:
    """The command ``streamsan``."""
    from streamsan.commands import main

    return main(list(words))


def _command(main: Main, words: list[str], printed: str) -> None:
    """A command in the forked process, its output in a file.

    A report is written by an exit handler, and a process of multiprocessing calls none: it ends
    through ``os._exit``, which StreamSan replaces.
    """
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.exit(main(words))
