"""``streamsan check`` and ``streamsan report``: findings from a trace file."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from streamsan import config
from streamsan.commands._outcome import check_output, check_stdout, deliver, exit_status
from streamsan.errors import EXIT_CLEAN, EXIT_INTERNAL, EXIT_USAGE, TraceError
from streamsan.model.findings import Report
from streamsan.model.records import AnyRecord
from streamsan.session import GuardedChecker
from streamsan.trace import read

_PATIENCE = 1.0
"""Seconds of work before progress is shown."""


class _TraceCommand:
    """What the two commands share: a trace in, a report out."""

    synopsis = "[options] TRACE"
    options: tuple[str, ...] = config.REPORTING
    details = (
        "A trace that was cut short or damaged is checked as far as it goes, and the exit status\n"
        "is 3. Nothing but StreamSan itself is needed: no framework, no GPU, not the program.\n"
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the trace and the options of the report."""
        parser.add_argument("trace_file", metavar="TRACE", type=Path)
        config.add_options(parser, self.options, "what to report")

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """There is no program: all words are the command's."""
        return words, []

    def _report(self, given: argparse.Namespace) -> tuple[Report, config.Settings, bool]:
        """Check the trace and deliver its report; tells whether that could be written.

        Raises TraceError, after the report of what could be read.
        """
        settings = replace(config.merge(os.environ, given), trace=None)  # none is written here
        check_output(settings, [given.trace_file])
        if settings.output is None:
            check_stdout()
        checker = GuardedChecker()
        error: TraceError | None = None
        records = 0
        try:
            for record in _with_progress(given.trace_file):
                checker.feed(record)
                records += 1
        except TraceError as failure:
            error = failure
        if error and not records:
            raise error
        found = checker.report()
        found.summary.complete = found.summary.complete and not error
        written = deliver(
            found, settings, sources=checker.sources, base=os.getcwd(), stream=sys.stdout
        )
        if error:
            raise error
        return found, settings, written


class CheckCommand(_TraceCommand):
    """Check a trace."""

    verb = "check"
    summary = "check a trace: report its races, and exit 66 if there are any"
    examples = (
        ("streamsan check train.streamsan", "report the races of a recorded run"),
        ("streamsan check --format json -o races.json train.streamsan", "for another program"),
    )

    def run(self, given: argparse.Namespace) -> int:
        """Report; the status says whether there are races."""
        found, settings, written = self._report(given)
        return exit_status(found, strict=settings.strict, written=written)


class ReportCommand(_TraceCommand):
    """Show a trace's report."""

    verb = "report"
    options = tuple(key for key in config.REPORTING if key != "strict")  # it always exits 0
    summary = "show a trace's report in another form; exit 0 whatever it says"
    examples = (
        ("streamsan report --format markdown train.streamsan", "a report for an issue"),
        ("streamsan report --all -v train.streamsan", "every race, with whole stacks"),
    )

    def run(self, given: argparse.Namespace) -> int:
        """Report; races are no failure here."""
        found, _, written = self._report(given)
        if not written:
            return EXIT_USAGE
        return EXIT_INTERNAL if found.summary.internal_errors else EXIT_CLEAN


def _with_progress(path: Path) -> Iterator[AnyRecord]:
    """The records of the trace; on a terminal, slow reading shows how far it is."""
    if not sys.stderr.isatty():
        yield from read(path)
        return
    start = time.monotonic()
    shown = False

    def show(position: int, size: int) -> None:
        nonlocal shown
        if size and time.monotonic() - start > _PATIENCE:
            shown = True
            percent = min(100, 100 * position // size)
            print(
                f"\rstreamsan: checking {path}: {percent:3}%", end="", file=sys.stderr, flush=True
            )

    try:
        yield from read(path, show)
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
