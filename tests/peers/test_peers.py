"""Each case of a peer's list has the verdict that its authors expect, or a reason why not."""

from __future__ import annotations

import pytest

from tests.peers.case import Case
from tests.peers.lists import LISTS
from tools import fill_peers

ALL = [
    pytest.param(case, id=f"{cases.peer}-{number}")
    for cases in LISTS
    for number, case in enumerate(cases)
]


@pytest.mark.parametrize("case", ALL)
def test_verdict(case: Case) -> None:
    assert case.agrees != bool(case.differs), (case.name, case.verdict(), case.expected)


def test_the_table_in_the_documentation_is_what_the_cases_say() -> None:
    text = fill_peers.PAGE.read_text(encoding="utf-8")
    assert fill_peers.filled(text) == text, "run python -m tools.fill_peers"
