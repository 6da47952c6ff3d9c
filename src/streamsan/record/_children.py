"""Processes that the program starts: nobody records them, so the report names them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from streamsan.record._observer import Observer
from streamsan.record._sites import is_user

_FORKS = ("os.fork", "os.forkpty")
_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.system")
"""Audit events (see the table in Python's manual), each with what is run as first argument."""

_COMPILERS = ("triton.", "torch._inductor.", "torch.utils.cpp_extension")
"""Packages that start compilers, assemblers and workers of their own."""


def watch_children(observer: Observer, used: Callable[[], bool]) -> None:
    """Note each kind of process that starts from now on and may use a GPU unseen.

    `used` tells whether this process has used the GPU: a child forked after that cannot.
    """

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            if observer.recording and not _compiles(sys._getframe(1), observer.user_files):
                observer.note_once("blind-spot", _program(event, arguments[0]))
        elif event in _FORKS and observer.recording and not used():
            observer.note_once(
                "blind-spot", "a child process was forked before the GPU was used: not recorded"
            )

    sys.addaudithook(audit)
    _watch_multiprocessing(observer)


def _compiles(frame: FrameType | None, user_files: tuple[str, ...]) -> bool:
    """Whether a program is started by a compiler of kernels: its helpers use no GPU."""
    while frame is not None and not is_user(frame.f_code.co_filename, user_files):
        if str(frame.f_globals.get("__name__")).startswith(_COMPILERS):
            return True
        frame = frame.f_back
    return False


def _program(event: str, path: object) -> str:
    words = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
    if event == "os.system":
        words = words.split()[0] if words.split() else words
    return f"another program was started and not recorded: {os.path.basename(words)}"


def _watch_multiprocessing(observer: Observer) -> None:
    """Processes of ``multiprocessing`` that are not forked from this one: no audit event."""
    original = BaseProcess.start

    @wraps(original)
    def start(self: BaseProcess) -> None:
        original(self)
        method = getattr(self, "_start_method", None)
        if observer.recording and method in ("spawn", "forkserver"):
            observer.note_once(
                "blind-spot",
                f"a child process of multiprocessing ({method}) was started and not recorded",
            )

    BaseProcess.start = start  # type: ignore[method-assign]
