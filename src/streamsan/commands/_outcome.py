"""What becomes of a finished session: where its report goes, and the exit status."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TextIO

from streamsan import report
from streamsan.config import Settings
from streamsan.errors import EXIT_INTERNAL, EXIT_RACES, UsageError
from streamsan.model.findings import Report
from streamsan.report import Sources


def absolute(path: Path | None) -> Path | None:
    """`path` as it is now, whatever directory the program changes to."""
    return Path(os.path.abspath(path)) if path else None


def check_output(settings: Settings) -> None:
    """Raise UsageError where the report cannot be written, before a long run finds out."""
    path = settings.output
    if path is None:
        return
    if settings.trace and os.path.abspath(settings.trace) == os.path.abspath(path):
        raise UsageError(f"--output and --trace both name {path}: name two files")
    if path.is_dir():
        raise UsageError(f"the output {path} is a directory: name a file in it")
    if path.is_file() and not settings.force:
        raise UsageError(f"the output file {path} exists already: name another one, or add --force")
    if not path.parent.is_dir():
        raise UsageError(f"the output {path} lies in no directory: make {path.parent} first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"the output {path} cannot be written: check its permissions")


def deliver(
    found: Report, settings: Settings, *, sources: Sources, base: str, stream: TextIO
) -> None:
    """Write the report to the output file, or to `stream` where none is set.

    An output file that turns out to be unwritable sends the report to `stream`, and says so there.
    """
    if settings.output is None:
        _show(found, settings, sources, base, stream)
        return
    view = report.View(sources=sources, base=base, limit=_limit(settings), verbose=settings.verbose)
    try:
        text = report.render(found, settings.format, view)
        settings.output.write_text(text, encoding="utf-8")
    except OSError as error:
        report.emit(f"streamsan: cannot write {settings.output}: {error.strerror}\n", stream)
        _show(found, settings, sources, base, stream)


def _show(found: Report, settings: Settings, sources: Sources, base: str, stream: TextIO) -> None:
    view = report.view_for(
        stream, sources=sources, base=base, limit=_limit(settings), verbose=settings.verbose
    )
    report.emit(report.render(found, settings.format, view), stream)


def _limit(settings: Settings) -> int | None:
    return None if settings.all else 10


def tell_next(settings: Settings, base: str) -> None:
    """Say on stderr where the trace is, and the exact command that checks it."""
    if settings.trace is None:
        return
    path = str(settings.trace)
    short = os.path.relpath(path, base) if path.startswith(base + os.sep) else path
    command = f"streamsan check {shlex.quote(short)}"
    report.emit(f"streamsan: the trace is in {short}; check it again with: {command}\n", sys.stderr)


def exit_status(found: Report, *, strict: bool, program: int = 0) -> int:
    """The status to exit with, after a program that ended with `program`.

    The program's own failure stands. Else 66 for races (`strict`: for any finding), else the
    program's own 0; an error of ours, which may have hidden a race, is in the report and is no
    business of the program's status, unless `strict` asks for 1.
    """
    if program & 0xFF:  # all that the system keeps of a status
        return program
    if found.races or (strict and (found.latent or found.misuse)):
        return EXIT_RACES
    return EXIT_INTERNAL if strict and found.summary.internal_errors else program
