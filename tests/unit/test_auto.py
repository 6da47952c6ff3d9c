"""``import streamsan.auto`` in processes of their own, with a recorder that needs no framework."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_commands import RACE, Done, python

SETUP = """
import sys
from tests.unit import launch
launch.stand_in()
import streamsan.auto
"""


def run(folder: Path, text: str, setting: str | None) -> Done:
    """Run a program that says ``import streamsan.auto``."""
    environment = {} if setting is None else {"STREAMSAN": setting}
    return python(folder, "-c", SETUP + text, **environment)


@pytest.mark.parametrize("setting", [None, "0", ""])
def test_off(tmp_path: Path, setting: str | None) -> None:
    done = run(tmp_path, "print(launch.recorder)", setting)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


def test_the_report_follows_the_program(tmp_path: Path) -> None:
    done = run(tmp_path, RACE + "sys.exit(3)", "1")
    assert done.returncode == 3
    assert done.stderr.startswith("race 1 of 1")


def test_options(tmp_path: Path) -> None:
    setting = "format=json,output=r.json,trace=t,devices=2"
    done = run(tmp_path, RACE + "print(launch.recorder.options.devices)", setting)
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert done.stderr.endswith("streamsan check t\n")
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "races"


def test_fail_fast(tmp_path: Path) -> None:
    done = run(tmp_path, "print('before')\n" + RACE + "print('after')", "fail_fast")
    assert (done.returncode, done.stdout) == (66, "before\n")
    assert done.stderr.count("race 1 of 1") == 1


@pytest.mark.parametrize(
    ("setting", "end", "status"),
    [
        ("1", "", 0),
        ("strict", "", 66),
        ("strict", "sys.exit(3)", 66),
        ("strict", "1/0", 1),
    ],
)
def test_strict(tmp_path: Path, setting: str, end: str, status: int) -> None:
    done = run(tmp_path, RACE + "print('done')\n" + end, setting)
    assert (done.returncode, done.stdout) == (status, "done\n")
    assert done.stderr.count("race 1 of 1") == 1


def test_strict_without_races(tmp_path: Path) -> None:
    assert run(tmp_path, "", "strict").returncode == 0
    assert run(tmp_path, "sys.exit(3)", "strict").returncode == 3


def test_force_spares_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SETUP)
    done = python(tmp_path, "program.py", STREAMSAN="force,trace=program.py")
    assert done.returncode == 2
    assert program.read_text() == SETUP


def test_a_mistake(tmp_path: Path) -> None:
    done = run(tmp_path, "print('ran')", "device=gpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "streamsan: there is no device 'gpu': choose from auto, cuda, virtual\n"


def test_a_forked_child_reports_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "import os\nif os.fork(): os.wait()", "1")
    assert done.returncode == 0
    assert done.stderr.count("streamsan: ") == 1
