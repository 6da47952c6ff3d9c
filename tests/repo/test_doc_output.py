"""Output shown in the documentation is what the program says (seconds apart)."""

from __future__ import annotations

import pytest

from tools import fill_docs


def test_documented_output_is_what_the_program_says() -> None:
    for file, marker, output in fill_docs.blocks():
        text = (fill_docs.ROOT / file).read_text(encoding="utf-8")
        renewed = fill_docs.filled(text, marker, output)
        assert fill_docs.timeless(text) == fill_docs.timeless(renewed), (
            f"{file}, {marker}: run python tools/fill_docs.py"
        )


def test_pictures_are_what_the_program_draws() -> None:
    for file, picture in fill_docs.pictures():
        drawn = (fill_docs.ROOT / file).read_text(encoding="utf-8")
        assert drawn == picture, f"{file}: run python tools/fill_docs.py"


def test_a_missing_marker_is_told() -> None:
    with pytest.raises(ValueError, match="no marker"):
        fill_docs.filled("text", "output: x", "y")
