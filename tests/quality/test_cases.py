"""Every labelled program, on the virtual GPU: each race is found, and nothing else is reported."""

from __future__ import annotations

import pytest

from tests.quality.preloaded import run_case
from tools.labels import Case, find_cases
from tools.score import ROOT, label_faults, score_case

COLLECTIONS = {"own": ROOT / "cases", "shared": ROOT.parent / "shared" / "cases"}
"""The repository's programs, and a second collection where one lies beside the repository."""

CASES = [
    pytest.param(case, id=f"{name}-{case.name}")
    for name, folder in COLLECTIONS.items()
    if folder.is_dir()
    for case in find_cases([folder])
]


def test_labels_are_sound_and_cover_the_rule_book() -> None:
    assert label_faults(ROOT / "cases", ROOT / "docs" / "rules.md") == []


@pytest.mark.parametrize("case", CASES)
def test_detector_finds_what_is_marked_and_nothing_else(case: Case) -> None:
    score = score_case(case, run_case)
    assert score.passed, score
