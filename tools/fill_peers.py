"""Writes the tables of ``docs/peers.md``: ``python -m tools.fill_peers``, from the repository.

Each row is a case of `tests/peers`, with the verdict that the checker gives it now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.peers.case import Case, Cases
from tests.peers.lists import LISTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "peers.md"

_PLACE = re.compile(r"(<!-- peers -->\n).*(<!-- end -->)", re.DOTALL)


def table(cases: Cases) -> Iterator[str]:
    """The lines of one peer's table."""
    agree = sum(case.agrees for case in cases)
    yield f"## {cases.peer}"
    yield ""
    yield f"Source: `{cases.source}`. StreamSan agrees on {agree} of {len(cases)}."
    yield ""
    yield "| case | what it does | expected | StreamSan |"
    yield "|---|---|---|---|"
    yield from map(_row, cases)
    yield ""


def _row(case: Case) -> str:
    name = ", ".join(
        part if part[0].isdigit() and len(part) < 3 else f"`{part}`"
        for part in case.name.split(", ")
    )
    expected = case.expected + (" (marked there as failing)" if case.fails else "")
    ours = case.verdict() + (f" ({case.differs})" if case.differs else "")
    return f"| {name} | {case.text} | {expected} | {ours} |"


def filled(text: str) -> str:
    """The page with its tables written anew. Raises ValueError where it has no place for them."""
    if not _PLACE.search(text):
        raise ValueError("there is no place between <!-- peers --> and <!-- end -->")
    lines = [line for cases in LISTS for line in ("", *table(cases))]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).lstrip("\n")
    return _PLACE.sub(lambda found: f"{found.group(1)}\n{body}{found.group(2)}", text)


def main() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
