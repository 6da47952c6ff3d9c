"""Tracebacks without our frames: an uncaught exception looks as it does without StreamSan."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import groupby
from types import TracebackType

_MACHINERY = ("/torch/_compile.py", "/torch/_dynamo/", "/torch/_ops.py", "/torch/utils/_python_")
"""Files of torch through which a dispatch mode is called, and through which it calls on."""

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def remove_our_frames(error: BaseException) -> None:
    """Take StreamSan's frames out of the tracebacks of `error` and of those it came from."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_ours(current.__traceback__)
        pending += [current.__cause__, current.__context__]


def hide_our_frames(error: BaseException) -> None:
    """Take StreamSan's frames out of the traceback of an exception that passes one of them.

    For a handler that ends with a bare ``raise``: that does not add its own frame again, from
    Python 3.11 on. The program then handles what it would without StreamSan, and no frame of ours
    keeps alive what the failing call was given. Where torch would lose an exception while it drops
    those (`streamsan.record._pending`), they must be kept.
    """
    error.__traceback__ = _without_ours(error.__traceback__)


def is_from_a_signal(error: BaseException) -> bool:
    """Whether a handler of the program's for a signal has raised an error, wherever it ran."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: object) -> object:
    """The code of a function, a method, or an object that is called; None of anything else."""
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while traceback:
        frames.append(traceback)
        traceback = traceback.tb_next
    kept = [frame for run in _runs(frames) if not any(map(_is_ours, run)) for frame in run]
    for index, frame in enumerate(kept):
        frame.tb_next = kept[index + 1] if index + 1 < len(kept) else None
    return kept[0] if kept else None


def _runs(frames: list[TracebackType]) -> Iterator[list[TracebackType]]:
    """The frames in runs: ours stand together with the machinery that led to them and back."""
    for _, run in groupby(frames, lambda frame: _is_ours(frame) or _is_machinery(frame)):
        yield list(run)


def _is_ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _is_machinery(frame: TracebackType) -> bool:
    return any(part in frame.tb_frame.f_code.co_filename for part in _MACHINERY)
