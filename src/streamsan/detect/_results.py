"""What a checker found: of a whole run, or of one share of its memory, to be put together."""

from __future__ import annotations

from dataclasses import dataclass

from streamsan.detect._findings import Mistake, Race
from streamsan.detect._latent import LatentGroup
from streamsan.detect._losses import Losses
from streamsan.detect._names import Line, Names
from streamsan.detect._report import Figures, build
from streamsan.model.findings import Report

Pair = tuple[Line, Line]


@dataclass(slots=True)
class Results:
    """The findings by the lines that they are about.

    `moved` are the pairs of lines whose latent race has become a race. `pieces` is the most pieces
    of memory that the checker held: what it gives up depends on them.
    """

    names: Names
    figures: Figures
    losses: Losses
    races: dict[Pair, Race]
    latent: dict[Pair, LatentGroup]
    moved: set[Pair]
    mistakes: dict[tuple[str, str, Line], Mistake]
    pieces: int

    def report(self) -> Report:
        """The report, in the order in which findings were first made."""
        return build(
            self.names,
            list(self.races.values()),
            [g for key, g in self.latent.items() if g.count and key not in self.moved],
            list(self.mistakes.values()),
            self.figures.summary(self.losses.texts()),
        )

    def absorb(self, other: Results) -> None:
        """Add what the checker of another share of the same run found."""
        for key, race in other.races.items():
            if key in self.races:
                self.races[key].absorb(race)
            else:
                self.races[key] = race
        for pair, group in other.latent.items():
            mine = self.latent.get(pair, group)
            first = min(mine, group, key=lambda g: g.at)
            first.count = mine.count + group.count if mine is not group else group.count
            self.latent[pair] = first
        for what, mistake in other.mistakes.items():
            known = self.mistakes.get(what, mistake)
            earliest = min(known, mistake, key=lambda m: m.at)
            earliest.count = known.count + mistake.count if known is not mistake else known.count
            self.mistakes[what] = earliest
        self.moved |= other.moved
        self.pieces += other.pieces
        self.losses.add(other.losses)
        self.races = dict(sorted(self.races.items(), key=lambda item: item[1].at))
        self.latent = dict(sorted(self.latent.items(), key=lambda item: item[1].at))
        self.mistakes = dict(sorted(self.mistakes.items(), key=lambda item: item[1].at))
