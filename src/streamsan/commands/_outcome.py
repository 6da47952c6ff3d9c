"""What becomes of a finished session: where its report goes, and the exit status."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TextIO

from streamsan import autograd, report
from streamsan.config import Settings
from streamsan.errors import EXIT_INTERNAL, EXIT_RACES, EXIT_USAGE, UsageError
from streamsan.model.findings import Report
from streamsan.report import Sources


def absolute(path: Path | None) -> Path | None:
    """`path` as it is now, whatever directory the program changes to."""
    return Path(os.path.abspath(path)) if path else None


def check_output(settings: Settings, inputs: Sequence[str | Path] = ()) -> None:
    """Raise UsageError where the report cannot be written, before a long run finds out.

    `inputs` are the files that the command reads: ``--force`` does not reach them.
    """
    files = {"--output": settings.output, "--trace": settings.trace, "--plan": settings.plan}
    given = {flag: path for flag, path in files.items() if path is not None}
    for flag, path in given.items():
        if settings.force:
            _spare(flag, path, inputs)
    for (flag, path), (other, second) in combinations(given.items(), 2):
        if os.path.realpath(path) == os.path.realpath(second):
            raise UsageError(f"{flag} and {other} both name {path}: name two files")
    for written in (settings.output, settings.plan):
        if written is not None:
            _check_file(written, settings.force)


def _check_file(path: Path, force: bool) -> None:
    """Raise UsageError where a file cannot be written."""
    if os.path.isdir(path):
        raise UsageError(f"the output {path} is a directory: name a file in it")
    if os.path.isfile(path) and not force:
        raise UsageError(f"the output file {path} exists already: name another one, or add --force")
    if not os.path.isdir(path.parent):
        raise UsageError(f"the output {path} lies in no directory: make {path.parent} first")
    try:
        _try_writing(os.path.realpath(path))
    except OSError as error:
        raise UsageError(
            f"the output {path} cannot be written ({error.strerror}): name another file"
        ) from None


def _spare(flag: str, path: Path | None, inputs: Sequence[str | Path]) -> None:
    """Raise UsageError if `path` is one of `inputs`, by whatever name."""
    if path is not None and any(_same_file(path, file) for file in inputs):
        raise UsageError(f"{flag} would overwrite {path}, which is the input: name another file")


def _same_file(path: Path, other: str | Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(path) == os.path.realpath(other)


def _try_writing(path: str) -> None:
    """Open `path` for appending, and leave all as it was. Raises OSError.

    Permissions do not tell: root has all of them, and some file systems take no files. A pipe is
    not opened, as its reader would take the end of this for the end of the report.
    """
    flags = os.O_WRONLY | os.O_APPEND
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            return
        file = os.open(path, flags | os.O_NOCTTY)
    else:
        os.unlink(path)
    try:
        os.write(file, b"")  # a device may refuse even this
    finally:
        os.close(file)


def deliver(
    found: Report, settings: Settings, *, sources: Sources, base: str, stream: TextIO | None
) -> bool:
    """Write the report to the output file, or to `stream` where none is set.

    An output file that turns out to be unwritable sends the report to `stream`, and stderr says
    so. Returns whether the report is where it should be: nobody who closed `stream`, or stopped to
    read it, misses it there.
    """
    written = settings.output is None or _save(found, settings, settings.output, sources, base)
    if stream is None or stream.closed or (settings.output and written):
        return written
    view = report.view_for(
        stream, sources=sources, base=base, limit=_limit(settings), verbose=settings.verbose
    )
    return _put(report.render(found, settings.format, view), stream) and written


def collect_plans(settings: Settings) -> autograd.Plans | None:
    """Collect the backward passes from here on, if the settings ask for an account of them."""
    wanted = settings.plan is not None or (settings.verbose and settings.engine)
    return autograd.collect() if wanted else None


def tell_plans(plans: autograd.Plans | None, settings: Settings, stream: TextIO | None) -> None:
    """Draw the backward passes, and print them after a report that is meant to be read."""
    if plans is None:
        return
    if settings.plan is not None:
        try:
            settings.plan.write_text(plans.svg(), encoding="utf-8")
        except OSError as error:
            _tell(f"cannot write {settings.plan}: {error.strerror}")
    readable = settings.format == "text" or settings.output is not None
    if settings.verbose and settings.engine and readable and stream is not None:
        _put(f"\n{plans}\n", stream)


def _save(found: Report, settings: Settings, path: Path, sources: Sources, base: str) -> bool:
    view = report.View(sources=sources, base=base, limit=_limit(settings), verbose=settings.verbose)
    text = report.render(found, settings.format, view)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _tell(f"cannot write {path}: {error.strerror}")
        return False
    return True


def _put(text: str, stream: TextIO) -> bool:
    """Write `text` to `stream`, and say on stderr if that fails."""
    try:
        report.emit(text, stream)
    except BrokenPipeError:  # the reader has seen enough
        silence(stream)
    except OSError as error:
        silence(stream)
        _tell(f"the output cannot be written: {error.strerror}")
        return False
    return True


def _tell(text: str) -> None:
    """Say a sentence on stderr, if that can be."""
    stream = sys.__stderr__ or sys.stderr
    with suppress(AttributeError, OSError, ValueError):  # there is none, or it is full or closed
        report.emit(f"streamsan: {text}\n", stream)


def say(text: str) -> None:
    """Print `text` on stdout. Raises BrokenPipeError, and UsageError where it cannot be written."""
    check_stdout()
    try:
        report.emit(text, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        silence(sys.stdout)
        raise UsageError(f"the output cannot be written: {error.strerror}") from None


def check_stdout() -> None:
    """Raise UsageError where there is no stdout: Python has None for a closed one."""
    if sys.stdout is None:
        raise UsageError("the output cannot be written: standard output is closed")


def silence(stream: TextIO) -> None:
    """Send what `stream` still holds nowhere: Python would fail to write it when it exits."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def flush_standard_streams() -> None:
    """Write out what the program printed, as Python does when it exits."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # replaced, gone or closed
            stream.flush()


def _limit(settings: Settings) -> int | None:
    return None if settings.all else 10


def tell_next(settings: Settings, base: str) -> None:
    """Say on stderr where the trace is, and the exact command that checks it."""
    if settings.trace is None:
        return
    path = str(settings.trace)
    short = os.path.relpath(path, base) if path.startswith(base + os.sep) else path
    command = f"streamsan check {shlex.quote(short)}"
    _tell(f"the trace is in {short}; check it again with: {command}")


def exit_status(found: Report, *, strict: bool, program: int = 0, written: bool = True) -> int:
    """The status to exit with, after a program that ended with `program`.

    The program's own failure stands. Else 2 for a report that is not `written`, 66 for races
    (`strict`: for any finding), else the program's own 0; an error of ours, which may have hidden a
    race, is in the report and is no business of the program's status, unless `strict` asks for 1.
    """
    if program & 0xFF:  # all that the system keeps of a status
        return program
    if not written:
        return EXIT_USAGE
    if found.races or (strict and (found.latent or found.misuse or found.possible)):
        return EXIT_RACES
    return EXIT_INTERNAL if strict and found.summary.internal_errors else program
