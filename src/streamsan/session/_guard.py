"""Keeping errors of our own away from the program, and the checker behind such a guard."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import length_hint

from streamsan.detect import Checker
from streamsan.model.findings import SCHEMA, Report, Summary
from streamsan.model.records import AnyRecord
from streamsan.report import Sources
from streamsan.tracebacks import is_from_a_signal

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_FRAMES = 4
"""Frames told of an internal error, innermost last."""


class Failures:
    """The first error of each part of ours, with a short traceback, and how many followed."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def has(self, part: str) -> bool:
        """Whether `part` has failed."""
        return part in self._first

    @contextmanager
    def kept(self, part: str) -> Iterator[None]:
        """Keep errors of the block, which does `part`, from going any further."""
        try:
            yield
        except Exception as error:  # whatever it is, the program goes on
            self.add(part, error)

    def add(self, part: str, error: Exception) -> None:
        """Remember `error`, raised while doing `part`."""
        self.tell(part, describe(error))

    def tell(self, part: str, text: str) -> None:
        """Remember a failure of `part` in words."""
        self._first.setdefault(part, text)
        self._count[part] = self._count.get(part, 0) + 1

    def texts(self) -> list[str]:
        """One text for each part that failed."""
        return [
            f"{part}: {text}"
            + (f" (and {self._count[part] - 1:,} more)" if self._count[part] > 1 else "")
            for part, text in self._first.items()
        ]


def is_foreign(error: BaseException) -> bool:
    """Whether an error comes from Python code that is not ours: from the program's handler of a
    signal, since this package calls nothing else of the program's.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and not trace.tb_frame.f_code.co_filename.startswith(_FOLDER)


def describe(error: BaseException) -> str:
    """An error with its innermost frames in one line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    path = " > ".join(
        f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames[-_FRAMES:]
    )
    name = type(error).__name__
    return f"{name}: {error} [{path}]" if str(error) else f"{name} [{path}]"


class GuardedChecker:
    """A Checker whose errors end up in its report."""

    def __init__(self) -> None:
        self._checker = Checker()
        self._failures = Failures()

    @property
    def sources(self) -> Sources:
        """The lines of all sites so far."""
        return self._checker.sources

    def has_race(self) -> bool:
        """Whether a race was found so far; costs nothing."""
        return self._checker.has_races

    def feed(self, record: AnyRecord) -> None:
        """Check `record`; never raises."""
        self.feed_all((record,))

    def feed_all(self, records: Sequence[AnyRecord]) -> None:
        """Check `records`; raises nothing of ours."""
        rest = iter(records)
        left = len(records)
        while left:
            self._feed_good(rest)
            if length_hint(rest) == left:  # it took not even the one that it failed at
                next(rest)
            left = length_hint(rest)

    def _feed_good(self, records: Iterator[AnyRecord]) -> None:
        """Check `records` up to the first that fails."""
        try:
            self._checker.feed_all(records)
        except Exception as error:  # whatever it is, the program goes on
            if is_from_a_signal(error):
                raise
            self._failures.add("checking", error)

    def failed(self, error: Exception) -> None:
        """Remember that a record was none."""
        self._failures.add("checking", error)

    def report(self) -> Report:
        """What was found so far, with errors of our own in it; never raises."""
        try:
            found = self._checker.report()
        except Exception as error:
            self._failures.add("reporting", error)
            found = nothing()
        found.summary.internal_errors += self._failures.texts()
        return found


def nothing() -> Report:
    """The report where there is none."""
    summary = Summary(0, 0, 0, 0.0, "unknown", [], [], False, None)
    return Report(SCHEMA, "clean", [], [], [], summary)
