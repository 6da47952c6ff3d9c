"""``streamsan check`` and ``streamsan report``: findings from trace files."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from streamsan import config
from streamsan.commands._outcome import check_output, check_stdout, deliver, exit_status, say
from streamsan.errors import (
    EXIT_CLEAN,
    EXIT_INTERNAL,
    EXIT_RACES,
    EXIT_USAGE,
    TraceError,
    UsageError,
)
from streamsan.model.findings import Report
from streamsan.session import Checked, check_trace, check_traces

_PATIENCE = 1.0
"""Seconds of work before progress is shown."""


class _TraceCommand:
    """What the two commands share: traces in, a report of each out."""

    synopsis = "[options] TRACE..."
    judges = True
    """Whether races are a failure."""
    options: tuple[str, ...] = (*config.CHECKING, *config.REPORTING)
    details = (
        "A trace that was cut short or damaged is checked as far as it goes, and the exit status\n"
        "is 3. Nothing but StreamSan itself is needed: no framework, no GPU, not the program.\n"
        "With --jobs several traces are checked at once, and a single one in several pieces.\n"
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the traces and the options of the report."""
        parser.add_argument("trace_files", metavar="TRACE", type=Path, nargs="+")
        config.add_options(parser, self.options, "what to report")

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """There is no program: all words are the command's."""
        return words, []

    def _status(self, found: Report, settings: config.Settings, written: bool) -> int:
        """The exit status that the report of one trace asks for."""
        if self.judges:
            return exit_status(found, strict=settings.strict, written=written)
        if not written:
            return EXIT_USAGE
        return EXIT_INTERNAL if found.summary.internal_errors else EXIT_CLEAN

    def run(self, given: argparse.Namespace) -> int:
        """Check the traces and deliver the reports; the status is the gravest.

        Raises TraceError, after the reports of what could be read.
        """
        settings = replace(config.merge(os.environ, given), trace=None)  # none is written here
        paths: list[Path] = given.trace_files
        check_output(settings, paths)
        if settings.output is None:
            check_stdout()
        elif len(paths) > 1:
            raise UsageError("--output takes the report of one trace: name one trace, or leave it")
        errors: list[str] = []
        statuses = {EXIT_CLEAN}
        for path, checked in zip(paths, _checked(paths, settings.jobs)):
            if checked.error is not None:
                errors.append(checked.error)
            if checked.report is None:
                continue
            if len(paths) > 1 and settings.format != "json":
                say(f"== {path}\n")
            written = deliver(
                checked.report,
                settings,
                sources=checked.sources,
                base=os.getcwd(),
                stream=sys.stdout,
            )
            statuses.add(self._status(checked.report, settings, written))
        if errors:
            raise TraceError("; ".join(errors))
        return next(s for s in (EXIT_USAGE, EXIT_RACES, EXIT_INTERNAL, EXIT_CLEAN) if s in statuses)


class CheckCommand(_TraceCommand):
    """Check traces."""

    verb = "check"
    summary = "check traces: report their races, and exit 66 if there are any"
    examples = (
        ("streamsan check train.streamsan", "report the races of a recorded run"),
        ("streamsan check --format json -o races.json train.streamsan", "for another program"),
        ("streamsan check --jobs auto rank*.streamsan", "the traces of all ranks, on all cores"),
    )


class ReportCommand(_TraceCommand):
    """Show a trace's report."""

    verb = "report"
    judges = False
    options = tuple(key for key in _TraceCommand.options if key != "strict")  # it always exits 0
    summary = "show a trace's report in another form; exit 0 whatever it says"
    examples = (
        ("streamsan report --format markdown train.streamsan", "a report for an issue"),
        ("streamsan report --all -v train.streamsan", "every race, with whole stacks"),
    )


def _checked(paths: list[Path], jobs: int) -> Iterator[Checked]:
    if len(paths) > 1:
        yield from check_traces(paths, jobs)
        return
    with _progress(paths[0]) as show:
        found = check_trace(paths[0], jobs, show)
    yield found


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int, int], None] | None]:
    """What shows, on a terminal, how far slow reading is."""
    if not sys.stderr.isatty():
        yield None
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
        yield show
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
