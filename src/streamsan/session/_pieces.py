"""Checking traces, also in pieces and several at once: the report is the same in every way.

A piece is a share of the memory (`streamsan.detect.Survey`). Each process reads the whole trace, so
nothing but the findings goes from one to another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from streamsan.detect import MOST_PIECES, Checker, Division, Results, Survey
from streamsan.errors import TraceError, UsageError
from streamsan.model.findings import Report
from streamsan.model.records import AnyRecord
from streamsan.report import Sources
from streamsan.session._guard import GuardedChecker
from streamsan.trace import read

if TYPE_CHECKING:
    from concurrent.futures import Executor

_SOME = 1024
"""Records that are checked at a time."""

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Checked:
    """What came of a trace; `report` is None if nothing of it could be read, `error` says why."""

    report: Report | None
    sources: Sources
    error: str | None


def check_trace(path: Path, jobs: int = 1, progress: Progress | None = None) -> Checked:
    """Check the trace at `path` as far as it can be read, in up to `jobs` processes."""
    if jobs > 1:
        found = _check_in_pieces(path, jobs, progress)
        if found is not None:
            return found
    checker = GuardedChecker()
    records = _Reader(path, progress)
    rest = iter(records)
    while some := list(islice(rest, _SOME)):
        checker.feed_all(some)
    if records.error is not None and not records.count:
        return Checked(None, {}, records.error)
    report = checker.report()
    report.summary.complete = report.summary.complete and records.error is None
    return Checked(report, checker.sources, records.error)


def check_traces(paths: list[Path], jobs: int) -> Iterator[Checked]:
    """Check traces, up to `jobs` at the same time; what came of each, in order."""
    if jobs == 1 or len(paths) == 1:
        for path in paths:
            yield check_trace(path, jobs)
        return
    with _pool(min(jobs, len(paths))) as pool:
        yield from pool.map(check_trace, paths)


class _Reader:
    """The records of a trace up to where it is good; then `error` says what is wrong with it."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.count = 0
        self.error: str | None = None
        self._path, self._progress = path, progress

    def __iter__(self) -> Iterator[AnyRecord]:
        try:
            for record in read(self._path, self._progress):
                self.count += 1
                yield record
        except TraceError as error:
            self.error = str(error)


def _check_in_pieces(path: Path, jobs: int, progress: Progress | None) -> Checked | None:
    """The same in pieces; None where only the whole gives the right answer."""
    survey = Survey()
    records = _Reader(path, progress)
    for record in records:
        survey.feed(record)
    divisions = survey.divide(jobs)
    if len(divisions) < 2:
        return None
    with _pool(len(divisions)) as pool:
        found = _gather(pool, path, divisions, survey.records)
    if found is None or found.pieces > MOST_PIECES:
        return None  # what is given up to stay within memory depends on all that there is
    report = found.report()
    report.summary.complete = report.summary.complete and records.error is None
    return Checked(report, found.names.sources, records.error)


def _gather(pool: Executor, path: Path, divisions: list[Division], records: int) -> Results | None:
    tasks = [pool.submit(_check_share, path, division, records) for division in divisions]
    found: Results | None = None
    for part in [task.result() for task in tasks]:
        if part is None:
            return None
        if found is None:
            found = part
        else:
            found.absorb(part)
    return found


def _check_share(path: Path, division: Division, records: int) -> Results | None:
    """What one share of the first `records` records gives; None if an error of ours came up."""
    checker = Checker(division=division)
    try:
        for number, record in enumerate(islice(_Reader(path), records)):
            checker.at = number
            checker.feed(record)
    except Exception:
        return None  # the check in one piece tells it
    return checker.results()


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    """Processes that begin anew: a fork would take along whatever this one holds.

    Raises TraceError if one of them is killed.
    """
    # Not at the top: the program under test shall find these modules as Python would load them.
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield pool
    except BrokenProcessPool:
        raise TraceError(
            "a process that checked a part was killed (out of memory?): use fewer --jobs"
        ) from None


def parse_jobs(text: str) -> int:
    """A number of processes, ``auto`` for one on each core that this one may use."""
    if text == "auto":
        return len(os.sched_getaffinity(0))
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text)):
        raise UsageError(f"{text!r} is no number of processes: give 1 to 999, or auto")
    return int(text)
