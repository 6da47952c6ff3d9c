"""Every labelled program, on the virtual GPU: each race is found, and nothing else is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsan.trace import read
from tests.hard.test_pieces import as_json, in_pieces, whole
from tests.quality.preloaded import run_case
from tools.labels import Case, find_cases
from tools.score import ROOT, Outcome, label_faults, score_case

COLLECTIONS = {"own": ROOT / "cases", "shared": ROOT.parent / "shared" / "cases"}
"""The repository's programs, and a second collection where one lies beside the repository."""

CASES = [
    pytest.param(case, id=f"{name}-{case.name}")
    for name, folder in COLLECTIONS.items()
    if folder.is_dir()
    for case in find_cases([folder])
    if case.only in ("", "virtual")
]


def test_labels_are_sound_and_cover_the_rule_book() -> None:
    assert label_faults(ROOT / "cases", ROOT / "docs" / "rules.md") == []


@pytest.mark.parametrize("case", CASES)
def test_detector_finds_what_is_marked_and_nothing_else(case: Case, tmp_path: Path) -> None:
    """And the trace of the run, checked whole or in pieces, has the same report."""
    outcomes: list[Outcome] = []

    def run(case: Case) -> Outcome:
        outcomes.append(run_case(case, tmp_path / "run.streamsan"))
        return outcomes[-1]

    score = score_case(case, run)
    assert score.passed, score
    records = list(read(tmp_path / "run.streamsan"))
    assert json.loads(as_json(whole(records))) == outcomes[-1].report
    pieces = in_pieces(records, 3)
    assert pieces is None or json.loads(as_json(pieces)) == outcomes[-1].report
