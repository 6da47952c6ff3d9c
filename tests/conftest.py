"""What all tests share: golden files, and the option that renews them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a change is to blame for what it breaks. New ones come
# with HYPOTHESIS_PROFILE=default, and each one that fails becomes a test of its own.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
# New ones of each property in tests/exact, 20,000 if not said otherwise: what `make exact` runs.
LONG = int(os.environ.get("EXACT_EXAMPLES", "20000"))
settings.register_profile("long", max_examples=LONG, database=None, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files of tests/golden anew; look at the difference before you keep it",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden file of the given name."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name}: --update-golden writes it anew"

    return compare
