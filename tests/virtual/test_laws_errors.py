"""Law 1: an error of ours is reported, once, and the program goes on.

Each function between a call of the program's and its report is broken in turn (`hooks` finds them,
so that a new one is tested too), in one process: see `tests.virtual.broken`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.virtual.hooks import hooks
from tests.virtual.programs import ENVIRONMENT, ROOT

Outcome = dict[str, Any]
Outcomes = dict[str, Outcome]

NOBODY = {"streamsan.trace._write:Writer._flush_regularly"}
"""The outermost function of a thread of ours: above it there is nobody to tell."""


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """What became of the program with each function broken, and under ```` with none."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.virtual.broken"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["hook"]: row for row in rows}


def test_the_program_is_recorded(outcomes: Outcomes) -> None:
    whole = outcomes[""]
    assert (whole["errors"], whole["trace"]) == ([], "")
    assert whole["races"]


def test_most_functions_take_part(outcomes: Outcomes) -> None:
    called = {hook for hook, outcome in outcomes.items() if outcome["calls"]}
    assert len(called) > len(outcomes) / 2
    for name in ("_define", "_new_thread", "stream", "_site", "acquire", "starting"):
        assert f"streamsan.record._observer:Observer.{name}" in called


@pytest.mark.parametrize("hook", hooks())
def test_a_broken_function_is_told_once(outcomes: Outcomes, hook: str) -> None:
    outcome = outcomes[hook]
    assert outcome["result"] == outcomes[""]["result"]
    if hook not in NOBODY:
        assert len(outcome["errors"]) == outcome["shown"] == bool(outcome["calls"])
    if "streamsan.trace" not in hook:
        assert outcome["trace"] == ""
