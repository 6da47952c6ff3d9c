"""The page of a text report: lines with a column of labels, wrapped to the width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from streamsan.report._paint import Paint, pad, width

_LABEL = 10
"""Columns of a label, its margins included."""


class Layout:
    """A page being filled from the top."""

    def __init__(self, columns: int, paint: Paint) -> None:
        self.paint = paint
        self._columns = columns
        self._lines: list[str] = []

    def text(self) -> str:
        """The page so far, without blanks at line ends."""
        return self.paint.finish("\n".join(line.rstrip() for line in self._lines) + "\n")

    def line(self, text: str) -> None:
        """One line, as it is."""
        self._lines.append(text)

    def blank(self) -> None:
        """An empty line, unless the page ends with one."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def rule(self, role: str, left: str, right: str) -> None:
        """A heading with a rule between its two ends."""
        gap = self._columns - len(left) - len(right) - 2
        rule = self.paint("faint", "─" * max(gap, 3))
        self.line(f"{self.paint(role, left)} {rule} {self.paint('strong', right)}")

    def labelled(self, label: str, paragraphs: Iterable[str]) -> None:
        """Plain paragraphs beside a label, wrapped."""
        room = self._columns - _LABEL
        lines = [
            line
            for paragraph in paragraphs
            for line in textwrap.wrap(
                paragraph, room, break_long_words=False, break_on_hyphens=False
            )
        ]
        self.beside(label, lines)

    def beside(self, label: str, lines: Sequence[str]) -> None:
        """Finished lines beside a label."""
        for index, line in enumerate(lines):
            self.line(
                "  " + pad(self.paint("strong", label if not index else ""), _LABEL - 2) + line
            )

    @staticmethod
    def table(rows: Sequence[Sequence[str]]) -> list[str]:
        """Rows of cells as lines, with columns aligned and two blanks between them."""
        columns = [max(map(width, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(pad(cell, columns[i]) for i, cell in enumerate(row)).rstrip() for row in rows
        ]
