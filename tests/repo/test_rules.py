"""The rule book against the code: each rule is implemented somewhere, and decides some test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.repo.checkout import ROOT, modules, tracked

BOOK = ROOT / "docs" / "rules.md"
ROW = re.compile(r"^\|\s*`?([A-Z]\d{1,2})`?\s*\|", re.MULTILINE)
RANGE = re.compile(r"\b([A-Z])(\d{1,2})(?: TO |-|\.\.)\1(\d{1,2})\b")
"""Several rules named at once, such as S1 to S3."""
KIND = re.compile(r"\bR\d\d-[A-Z0-9-]+\b")


def rule_ids() -> list[str]:
    """The ids of the rule book's tables, in order."""
    return list(dict.fromkeys(ROW.findall(BOOK.read_text(encoding="utf-8"))))


@cache
def mentioned(where: str) -> frozenset[str]:
    """All words in the shape of a rule id in the package's sources, or in tests and cases."""
    files: Iterable[Path] = modules()
    if where == "tests":
        files = (
            path
            for path in tracked()
            if path.suffix == ".py"
            and path.relative_to(ROOT).parts[0] in {"tests", "cases"}
            and path != Path(__file__).resolve()
        )
    words: set[str] = set()
    for path in files:
        # An underscore parts words here: test_E1_race and test_e1_race both name E1.
        source = path.read_text(encoding="utf-8").upper().replace("_", " ")
        words.update(re.findall(r"\b[A-Z]\d{1,2}\b", source + " " + path.stem.upper()))
        for letter, low, high in re.findall(
            r"\b([A-Z])(\d{1,2})(?: TO |-|\.\.)\1(\d{1,2})\b", source
        ):
            words.update(f"{letter}{n}" for n in range(int(low), int(high) + 1))
    return frozenset(words)


def test_the_book_is_read() -> None:
    assert {"S1", "E2", "H2", "C7", "M2", "G4", "A4", "T1"} <= set(rule_ids())


@pytest.mark.parametrize("rule", rule_ids())
@pytest.mark.parametrize("where", ["source", "tests"])
def test_rule_is_implemented_and_tested(where: str, rule: str) -> None:
    assert rule in mentioned(where)


def test_every_kind_of_race_is_documented() -> None:
    kinds = {kind for path in modules() for kind in KIND.findall(path.read_text(encoding="utf-8"))}
    documented = set(KIND.findall((ROOT / "docs" / "reports.md").read_text(encoding="utf-8")))
    assert kinds
    assert kinds <= documented
