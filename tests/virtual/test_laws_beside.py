"""With the checker in a process beside it, a program behaves as ever, and has the same report."""

from __future__ import annotations

import json
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.virtual.programs import ROOT, Programs
from tests.virtual.test_laws_program import HEAD, PROGRAMS, RACE

NAMES = (
    "error in a thread",
    "exit with a status",
    "exit at once",
    "keyboard interrupt",
    "killed",
    "handler of a signal",
    "fork",
    "fork that ends in order",
    "fork before the GPU is used",
    "multiprocessing",
    "a thread that outlives the main one",
    "loader",
    "exit handlers",
    "other programs",
    "another program takes over",
)
"""Programs that have to do with processes, files and signals, and with how they end."""


@pytest.mark.parametrize("name", NAMES)
def test_a_program_behaves_as_under_python(programs: Programs, name: str) -> None:
    text = HEAD + textwrap.dedent(PROGRAMS[name])
    expected = programs.plain(text)
    done = programs.run(text, beside=True)
    assert (done.status, done.stdout, done.stderr) == (
        expected.status,
        expected.stdout,
        expected.stderr,
    )
    if done.report:
        assert done.errors == []


def _cases() -> list[Path]:
    """Some of the labelled programs, from all over."""
    found = sorted((ROOT / "cases").rglob("*.py"))
    return found[:: len(found) // 12][:12]


def _as_told(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what differs from run to run."""
    told: dict[str, Any] = json.loads(json.dumps(report))
    told["summary"]["seconds"] = 0
    return told


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.stem)
def test_one_report(programs: Programs, case: Path) -> None:
    options = ("--devices", "2")
    inside = programs.run_file(str(case), options=options)
    done = programs.run_file(str(case), options=(*options, "--trace", "t"), beside=True)
    assert (done.status, done.stdout) == (inside.status, inside.stdout)
    assert _as_told(done.report) == _as_told(inside.report)
    check = programs.streamsan("check", "--format", "json", "--all", "t")
    assert json.loads(check.stdout) == done.report


def test_a_killed_program_leaves_a_trace(programs: Programs) -> None:
    text = HEAD + RACE + "import signal; time.sleep(2); os.kill(os.getpid(), signal.SIGKILL)\n"
    done = programs.run(text, options=("--trace", "t"), beside=True)
    assert (done.status, done.report) == (-signal.SIGKILL, {})
    check = programs.streamsan("check", "t")
    assert check.status == 3
    assert "race 1 of 1" in check.stdout


def test_stop_at_the_first_race(programs: Programs) -> None:
    text = HEAD + "print('before')\n" + RACE + "print('after')\n"
    done = programs.run(text, options=("--fail-fast", "--trace", "t"), beside=True)
    assert (done.status, done.stdout, done.lines) == (66, "before\n", [(11, 12)])
    assert programs.streamsan("check", "t").status == 66
