"""A case of a peer: what it does, what its authors expect, and what StreamSan says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.peers.cuda import Cuda
from tests.unit.builder import Trace

RACE, CLEAN, LATENT = "race", "clean", "latent"

Build = Callable[[Cuda], None]


@dataclass(frozen=True)
class Case:
    """A case. `name` is the peer's name or number for it, `expected` its authors' verdict.

    `fails` says that the peer's list marks it as failing with its own tool; `differs`, why
    StreamSan's verdict is another one.
    """

    name: str
    text: str
    expected: str
    build: Build
    fails: bool = False
    differs: str = ""

    def trace(self) -> Trace:
        """The case as a trace."""
        cuda = Cuda()
        self.build(cuda)
        return cuda.trace

    def verdict(self) -> str:
        """What StreamSan says: ``clean``, or what it found and how many (lines of the program)."""
        report = self.trace().report()
        found = [(RACE, len(report.races)), (LATENT, len(report.latent))]
        words = [word if count == 1 else f"{word} x{count}" for word, count in found if count]
        return ", ".join(words) or CLEAN

    @property
    def agrees(self) -> bool:
        """Whether StreamSan's verdict is the one expected, in number too if one is named."""
        verdict = self.verdict()
        return self.expected in (verdict, verdict.partition(" x")[0])


class Cases(list[Case]):
    """A peer's list. `source` is where it is to be found."""

    def __init__(self, peer: str, source: str) -> None:
        super().__init__()
        self.peer, self.source = peer, source

    def case(
        self, name: str, text: str, expected: str, *, fails: bool = False, differs: str = ""
    ) -> Callable[[Build], Build]:
        """The function that follows is a case."""

        def add(build: Build) -> Build:
            self.append(Case(name, text, expected, build, fails, differs))
            return build

        return add

    def both(
        self, name: str, text: str, *, fails: bool = False
    ) -> Callable[[Callable[[Cuda, bool], None]], Callable[[Cuda, bool], None]]:
        """The function that follows is two: a race as it stands, clean with what orders it."""

        def add(build: Callable[[Cuda, bool], None]) -> Callable[[Cuda, bool], None]:
            racy = f"{text}: left out"
            self.append(Case(name, racy, RACE, lambda c: build(c, False), fails))
            self.append(Case(name, text, CLEAN, lambda c: build(c, True)))
            return build

        return add
