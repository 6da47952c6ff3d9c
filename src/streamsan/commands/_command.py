"""What a command is."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """A verb of the command line.

    `summary` is its line in the overview; `synopsis` follows ``streamsan VERB`` in its usage;
    `examples` are pairs of a command line and what it does; `details` close its help page.
    """

    verb: str
    summary: str
    synopsis: str
    details: str

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        """Command lines with what they do."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Part the command's own words from those of the program it runs."""

    def run(self, given: argparse.Namespace) -> int:
        """Do it and return the exit status; raises StreamSanError."""
