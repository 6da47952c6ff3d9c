"""Checking where the records are: the checker and the trace's writer, in one process.

It does so inside the program, and in the process beside one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from streamsan.model.findings import Report
from streamsan.model.records import AnyRecord, Operation
from streamsan.report import Sources
from streamsan.session._guard import Failures, GuardedChecker
from streamsan.trace import Writer

_TRACE = "writing the trace"


class Checking(Protocol):
    """What checks a run and writes its trace. Nothing in it raises, and one thread calls at a time:
    who hands it records from several holds a lock around all calls, the recorder's.
    """

    @property
    def sources(self) -> Sources:
        """The program's lines that took part."""

    def feed(self, record: AnyRecord) -> None:
        """Take the next record of the run."""

    def report(self) -> Report:
        """What was found so far, with errors of our own in it."""

    def close(self) -> None:
        """End the trace: the run is over."""

    def discard(self) -> None:
        """Remove the trace: nothing could be recorded."""


class LocalChecker:
    """Checks each record as it comes, and writes it to `trace` if there is one.

    `on_race` is called once, from inside the call that brought the first race. A forked child's
    records are dropped. Raises UsageError where the trace cannot be written.
    """

    def __init__(
        self,
        trace: Path | None = None,
        *,
        force: bool = False,
        on_race: Callable[[], None] | None = None,
    ) -> None:
        self._process = os.getpid()
        self._trace = trace
        self._writer = Writer(trace, force=force) if trace else None
        self._on_race = on_race
        self._checker = GuardedChecker()
        self._failures = Failures()

    @property
    def sources(self) -> Sources:
        """The program's lines that took part."""
        return self._checker.sources

    def feed(self, record: AnyRecord) -> None:
        """Take the next record of the run."""
        if os.getpid() != self._process:
            return
        self.write((record,))
        self._checker.feed(record)
        if self._on_race and isinstance(record, Operation) and self._checker.has_race():
            on_race, self._on_race = self._on_race, None
            on_race()

    def feed_all(self, records: Sequence[AnyRecord]) -> None:
        """Take the next records of the run."""
        self.write(records)
        self._checker.feed_all(records)

    def feed_good(self, records: Sequence[AnyRecord | Exception]) -> None:
        """Take the next records of the run, with an error in place of each that was none."""
        self.feed_all([record for record in records if not isinstance(record, Exception)])
        for error in records:
            if isinstance(error, Exception):
                self._checker.failed(error)

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Write records to the trace alone."""
        if self._writer and not self._failures.has(_TRACE):
            with self._failures.kept(_TRACE):
                self._writer.write(*records)

    def report(self) -> Report:
        """What was found so far, with errors of our own in it."""
        found = self._checker.report()
        found.summary.internal_errors += self._failures.texts()
        return found

    def close(self) -> None:
        """End the trace: the run is over."""
        if self._writer:
            with self._failures.kept(_TRACE):
                self._writer.close()

    def discard(self) -> None:
        """Remove the trace: nothing could be recorded."""
        if self._writer and self._trace:
            self.close()
            self._trace.unlink(missing_ok=True)
            self._writer = None
