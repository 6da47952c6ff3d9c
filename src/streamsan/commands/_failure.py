"""How a program ends: what Python prints and which status it exits with, without our frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from types import TracebackType

_MACHINERY = ("/torch/_compile.py", "/torch/_dynamo/", "/torch/_ops.py", "/torch/utils/_python_")
"""Files of torch through which a dispatch mode is called, and through which it calls on."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def system_exit_status(error: SystemExit) -> int:
    """The status that `error` asks for; as by Python, a code that is no number is printed."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def report_exception(error: BaseException) -> int:
    """Hand an uncaught exception to ``sys.excepthook``, as Python does; returns the status."""
    _remove_our_frames(error)
    sys.last_type, sys.last_value = type(error), error
    sys.last_traceback = error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as exit_:
        return system_exit_status(exit_)
    except BaseException as failure:
        _remove_our_frames(failure)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def _remove_our_frames(error: BaseException) -> None:
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
