"""Progress of a long check: on a terminal, after a while, and gone at the end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from streamsan.commands import main
from streamsan.trace import Writer
from tests.unit.samples import racy_run

MODULE = "streamsan.commands._check"


class Terminal(io.StringIO):
    """A terminal, or a file that is none."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of many frames."""
    writer = Writer(tmp_path / "t", batch=1)
    for record in racy_run():
        writer.write(record)
    writer.close()
    return tmp_path / "t"


def check(trace: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, patience: float) -> str:
    """What the command writes to stderr."""
    stderr = Terminal(terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(f"{MODULE}._PATIENCE", patience)
    assert main(["check", str(trace)]) == 66
    return stderr.getvalue()


def test_a_long_check_shows_how_far_it_is(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = check(trace, monkeypatch, terminal=True, patience=-1)
    percents = [int(part.split(":")[2].strip(" %")) for part in shown.split("\r")[1:-1]]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert len(set(percents)) > 3
    assert shown.endswith("\r\x1b[K")
    assert "race 1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize(("terminal", "patience"), [(True, 3600), (False, -1)])
def test_a_short_check_and_a_file_show_nothing(
    trace: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, patience: float
) -> None:
    assert check(trace, monkeypatch, terminal=terminal, patience=patience) == ""
