"""The report: the findings of a run and its figures."""

from __future__ import annotations

from collections import Counter

from streamsan.detect._findings import (
    Mistake,
    Race,
    latent_finding,
    mistake_finding,
    race_finding,
)
from streamsan.detect._latent import LatentGroup
from streamsan.detect._names import Names
from streamsan.model.findings import SCHEMA, Report, Summary
from streamsan.model.records import End, Header, Note


class Figures:
    """What a run says and counts about itself."""

    __slots__ = (
        "_allocator",
        "_blind_spots",
        "_end",
        "_engine",
        "_errors",
        "_rank",
        "_recorder",
        "accesses",
        "operations",
        "streams",
    )

    def __init__(self) -> None:
        """A run that has not begun."""
        self.operations = self.accesses = self.streams = 0
        self._recorder = self._engine = self._allocator = self._rank = ""
        self._end: End | None = None
        self._blind_spots: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def header(self, record: Header) -> None:
        """The run begins."""
        self._recorder = record.recorder
        self._engine = record.options.get("engine", "")
        self._allocator = record.options.get("allocator", "")
        self._rank = record.options.get("rank", "")

    def note(self, record: Note) -> None:
        """Something that the report must say."""
        if record.topic == "blind-spot":
            self._blind_spots[record.text] += 1
        elif record.topic == "internal-error":
            self._errors[record.text] += 1

    def end(self, record: End) -> None:
        """The run has ended."""
        self._end = record

    def summary(self, losses: list[str]) -> Summary:
        """The figures, and what the checker itself gave up."""
        return Summary(
            operations=self.operations,
            accesses=self.accesses,
            streams=self.streams,
            seconds=self._end.seconds if self._end else 0.0,
            recorder=self._recorder,
            blind_spots=_counted(self._blind_spots) + losses,
            internal_errors=_counted(self._errors),
            complete=self._end is not None,
            exit_status=self._end.status if self._end else None,
            engine=self._engine,
            allocator=self._allocator,
            rank=self._rank,
        )


def build(
    names: Names,
    races: list[Race],
    latent: list[LatentGroup],
    mistakes: list[Mistake],
    summary: Summary,
) -> Report:
    """The report of a run, in the order in which its findings were first made.

    What rests on a guess comes after the rest: races in a list of their own, `possible`.
    """
    found = [race_finding(race, names) for race in races if not race.possible]
    possible = [race_finding(race, names) for race in races if race.possible]
    dropped = [latent_finding(group, names) for group in latent]
    return Report(
        schema=SCHEMA,
        verdict="races" if found else "clean",
        races=found,
        latent=sorted(dropped, key=lambda finding: finding.confidence == "possible"),
        misuse=[mistake_finding(mistake, names) for mistake in mistakes],
        summary=summary,
        possible=possible,
    )


def _counted(texts: Counter[str]) -> list[str]:
    return [text if count == 1 else f"{text} ({count} times)" for text, count in texts.items()]
