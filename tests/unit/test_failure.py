"""Tracebacks as the program would print them by itself."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

import streamsan
from streamsan.commands._failure import report_exception

OURS = str(Path(streamsan.__file__).with_name("record") / "_made_up.py")


def call_through(*files: str) -> BaseException:
    """An exception raised by code of the last file, called through the others in order."""
    calls = "def call(rest):\n    rest[0](rest[1:]) if rest else 1 / 0\n"
    functions = []
    for file in files:
        names: dict[str, object] = {}
        exec(compile(calls, file, "exec"), names)
        functions.append(names["call"])
    try:
        functions[0](functions[1:])  # type: ignore[operator]
    except ZeroDivisionError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (["user.py"], ["user.py"]),
        ([OURS, "user.py", OURS, "hook.py"], ["user.py", "hook.py"]),
        (["user.py", "/x/torch/_compile.py", OURS, "/x/torch/_ops.py"], ["user.py"]),
        (["user.py", "/x/torch/_ops.py", "op.py"], ["user.py", "/x/torch/_ops.py", "op.py"]),
        ([OURS], []),
    ],
    ids=["none", "between", "dispatch", "torch's own", "all"],
)
def test_our_frames_go(
    files: list[str],
    shown: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        monkeypatch.setattr(f"sys.{name}", None, raising=False)
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)
    error = call_through(*files)
    assert report_exception(error) == 1
    assert [f.filename for f in traceback.extract_tb(error.__traceback__)] == shown
    printed = capsys.readouterr().err
    assert printed.endswith("ZeroDivisionError: division by zero\n")
    assert OURS not in printed


def test_our_frames_go_from_causes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        monkeypatch.setattr(f"sys.{name}", None, raising=False)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    cause = call_through("user.py", OURS)
    error = KeyError(1)
    error.__cause__ = cause
    cause.__context__ = error  # a ring, as exception groups can make one
    assert report_exception(error) == 1
    assert [f.filename for f in traceback.extract_tb(cause.__traceback__)] == ["user.py"]
