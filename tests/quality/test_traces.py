"""Traces of labelled programs, recorded on a real GPU, are checked to the verdicts of their labels.

``python tools/score.py --extra "--device cuda" --devices 1 --traces tests/traces/h200 cases``
records them and ``python tools/portable.py "$PWD" tests/traces/h200/*`` takes the machine's folder
out; the report of a trace needs neither torch nor a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from streamsan.detect import Checker
from streamsan.model.records import Header, SiteDef
from streamsan.trace import read
from tools.labels import Case, find_cases
from tools.score import ROOT, Outcome, judge

FOLDER = ROOT / "tests" / "traces"
CASES = {case.name: case for case in find_cases([ROOT / "cases"])}
TRACES = sorted(FOLDER.glob("*/*.streamsan"))


def test_there_are_traces_of_a_real_gpu() -> None:
    assert len(TRACES) > 100
    assert sum(path.stat().st_size for path in TRACES) < 3 << 20


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in TRACES])
def test_a_trace_of_the_gpu_has_the_verdict_of_its_program(path: Path) -> None:
    case: Case = CASES[path.stem]
    checker = Checker()
    recorder = ""
    for record in read(path):
        checker.feed(record)
        if isinstance(record, Header):
            recorder = record.recorder
    report = checker.report()
    assert recorder == "cuda"
    assert report.summary.complete
    assert report.summary.internal_errors == []
    status = 66 if report.races else 0
    score = judge(case, Outcome(status, json.loads(msgspec.json.encode(report))))
    assert score.passed, score


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in TRACES])
def test_a_trace_names_no_folder_of_the_machine_it_is_from(path: Path) -> None:
    files = [record.file for record in read(path) if isinstance(record, SiteDef)]
    assert files
    assert not [file for file in files if file.startswith("/")]
