"""Runs ``streamsan run --device virtual`` on programs, in processes that have torch already."""

from __future__ import annotations

from pathlib import Path

from tools.forked import Task, run_one, streamsan
from tools.labels import Case
from tools.score import Outcome

SECONDS = 120


def run_case(case: Case, trace: Path | None = None) -> Outcome:
    """Run StreamSan on one program. With `trace`, the trace of the run is kept there."""
    options = ["run", "--device", "virtual", "--devices", str(case.devices)]
    if trace is not None:
        options += ["--trace", str(trace)]
    return run_one(Task(case, streamsan, tuple(options)), SECONDS)
