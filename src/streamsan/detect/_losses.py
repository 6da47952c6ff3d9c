"""What a checker gave up to stay within its memory and time; the report says all of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Losses:
    """Counts of what was forgotten or not looked at.

    `uses` were forgotten because more than `limit` lines used the same bytes on one stream,
    `pieces` because memory was used in too many small pieces. `undecided` pairs of views were too
    intricate to compare, `malformed` accesses name no bytes at all, and `merged` host objects share
    one clock.
    """

    limit: int
    uses: int = 0
    pieces: int = 0
    undecided: int = 0
    malformed: int = 0
    merged: int = 0

    def add(self, other: Losses) -> None:
        """Add what a checker of another share of the memory gave up; `merged` all give up alike."""
        self.uses += other.uses
        self.pieces += other.pieces
        self.undecided += other.undecided
        self.malformed += other.malformed

    def texts(self) -> list[str]:
        """A sentence for each that is not zero."""
        found = []
        if self.uses:
            found.append(
                f"{self.uses:,} older uses were forgotten: more than {self.limit} lines of the"
                " program used the same bytes on one stream with no wait of the host in between"
            )
        if self.pieces:
            found.append(
                f"{self.pieces:,} older uses were forgotten: the program used its memory in very"
                " many small pieces with no wait of the host in between"
            )
        if self.undecided:
            found.append(
                f"{self.undecided:,} pairs of strided views were taken as apart: they are too"
                " intricate to compare"
            )
        if self.malformed:
            found.append(f"{self.malformed:,} accesses were left out: they name no bytes")
        if self.merged:
            found.append(
                f"{self.merged:,} locks, queues, events and futures count as handed over at once:"
                " the program made very many that some thread never followed"
            )
        return found
