"""Colour by plain ANSI codes, and ASCII stand-ins for terminals that cannot show more.

Colour never carries meaning of its own: every painted word says the same without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CODES = {
    "race": "1;31",
    "latent": "1;33",
    "misuse": "1;35",
    "good": "1;32",
    "strong": "1",
    "stream": "36",
    "faint": "2",
}

_ASCII = str.maketrans({"─": "-", "│": "|", "·": "-", "…": "..."})
_ESCAPES = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Paint:
    """Paints words, or leaves them as they are."""

    colour: bool
    unicode: bool

    def __call__(self, role: str, text: str) -> str:
        """`text` in the colour of `role`, one of ``race``, ``latent``, ``misuse``, ``good``,
        ``strong``, ``stream`` and ``faint``.
        """
        return f"\x1b[{_CODES[role]}m{text}\x1b[0m" if self.colour and text else text

    def finish(self, text: str) -> str:
        """The finished page, with ASCII for our own signs where the terminal needs it."""
        return text if self.unicode else text.translate(_ASCII)


def width(text: str) -> int:
    """Columns that painted text takes."""
    return len(_ESCAPES.sub("", text))


def pad(text: str, columns: int) -> str:
    """Painted text, filled up with blanks to `columns`."""
    return text + " " * (columns - width(text))
