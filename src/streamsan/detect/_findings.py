"""Findings as the report has them: races, latent races and misuse, made of their facts."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from streamsan.detect._blocks import Block
from streamsan.detect._explain import (
    access_word,
    missing_edge,
    missing_latent_edge,
    nearest_edge,
    nearest_latent_edge,
)
from streamsan.detect._facts import Conflict, Part
from streamsan.detect._kinds import KINDS
from streamsan.detect._latent import LatentGroup
from streamsan.detect._names import Names
from streamsan.detect._repair import latent_repairs, repairs
from streamsan.model.extent import span
from streamsan.model.findings import Finding, Memory, Side, Site
from streamsan.model.records import NONE, Access, Confidence, Mode, Operation, OpKind

_REUSE = "R03-ALLOC-REUSE"

At = tuple[int, int, int]
"""Where in a run: the operations so far, the access of the last one (or a point behind it), and the
use that it met."""


@dataclass(slots=True)
class Telling:
    """One conflict that may tell a race, its kind, where it was found, and how sure it is."""

    conflict: Conflict
    kind: str
    at: At
    confidence: Confidence

    @property
    def rank(self) -> tuple[bool, int, At]:
        """The smallest tells most: no guess, the most specific kind, and the first of these."""
        return self.confidence == Confidence.POSSIBLE, KINDS.index(self.kind), self.at


@dataclass(slots=True)
class Race:
    """All conflicts of one ordered pair of lines.

    `best` tells most of all, `stayed` most of those whose bytes stayed with one owner; `at` is
    where the first was found. `count` counts pairs of operations, but for those in `pairs`, by
    number, which checkers of other shares of the memory may have met too.
    """

    best: Telling
    at: At
    stayed: Telling | None = None
    count: int = 0
    pairs: set[tuple[int, int]] = field(default_factory=set)

    def add(self, telling: Telling) -> None:
        """Another conflict of these lines."""
        self.best = min(self.best, telling, key=lambda t: t.rank)
        if not telling.conflict.moved:
            self.stayed = min(self.stayed or telling, telling, key=lambda t: t.rank)

    def absorb(self, other: Race) -> None:
        """Add what another share of the memory knows of the same lines."""
        for telling in (other.best, other.stayed):
            if telling is not None:
                self.add(telling)
        self.at = min(self.at, other.at)
        self.count += other.count
        self.pairs |= other.pairs

    @property
    def possible(self) -> bool:
        """Whether all that is known of it rests on a guess."""
        return self.told.confidence == Confidence.POSSIBLE

    @property
    def told(self) -> Telling:
        """The conflict that tells the race.

        Reuse explains none that happens without it: a pair of lines whose bytes stayed with one
        owner once is no `R03-ALLOC-REUSE`, however often a block changes hands between the two.
        """
        best, stayed = self.best, self.stayed
        if stayed is None or best.kind != _REUSE or not best.conflict.moved:
            return best
        return stayed if stayed.rank[0] == best.rank[0] else best


@dataclass(slots=True)
class Mistake:
    """A misuse: its kind, what is wrong, the call, what it was about, and the record's number."""

    kind: str
    text: str
    thread: int
    stack: int
    stream: int
    repair: list[str]
    block: Block | None = None
    count: int = 0
    at: int = 0


def race_finding(race: Race, names: Names) -> Finding:
    """The finding of a race."""
    conflict, kind = race.told.conflict, race.told.kind
    block = conflict.first.block or conflict.second.block
    accesses = [part.access for part in conflict.sides]
    start = block.start if block is not None else min(a.address for a in accesses)
    end = max(span(_extent(a))[1] for a in accesses)
    first, second = (_side(part, start, names) for part in conflict.sides)
    births = (conflict.first.op.timeline, conflict.second.op.timeline)
    return Finding(
        id=_identity(kind, "race", (first.site, second.site), births, names),
        kind=kind,
        hazard=conflict.hazard,
        confidence=race.told.confidence.name.lower(),
        count=race.count + len(race.pairs),
        first=first,
        second=second,
        memory=_memory(block, conflict.moved, end - start, names),
        missing_edge=missing_edge(conflict, names),
        nearest_edge=nearest_edge(conflict, names),
        repair=repairs(conflict, kind, names),
    )


def latent_finding(group: LatentGroup, names: Names) -> Finding:
    """The finding of a latent race; its second side is the free."""
    block, free = group.block, group.free
    _, op, access, _, _ = group.use
    first = _side(Part(op, access, block), block.start, names)
    free_op = Operation(NONE, int(OpKind.KERNEL), "free", block.stream, free.thread, free.stack, ())
    whole = Access(block.space, block.start, block.size, (), (), int(Mode.WRITE), "")
    second = _side(Part(free_op, whole, block), block.start, names)
    kind = "R03-ALLOC-REUSE"
    births = (op.timeline, block.stream)
    return Finding(
        id=_identity(kind, "latent", (first.site, second.site), births, names),
        kind=kind,
        hazard="write-after-read" if access.mode == Mode.READ else "write-after-write",
        confidence=Confidence(access.confidence).name.lower(),
        count=group.count,
        first=first,
        second=second,
        memory=_memory(block, True, block.size, names),
        missing_edge=missing_latent_edge(group, names),
        nearest_edge=nearest_latent_edge(group, names),
        repair=latent_repairs(group, names),
    )


def mistake_finding(mistake: Mistake, names: Names) -> Finding:
    """The finding of a misuse: both sides are the call, and `missing_edge` says what is wrong."""
    stream, block = mistake.stream, mistake.block
    side = Side(
        op="call",
        access="",
        stream=names.timeline(stream) if stream != NONE else "host",
        device=names.device(stream) if stream != NONE else "cpu",
        thread=names.thread(mistake.thread),
        site=names.site(mistake.stack),
        stack=names.stack(mistake.stack),
        forward_site=None,
        argument="",
        range=(0, block.size if block is not None else 0),
    )
    return Finding(
        id=_identity(mistake.kind, "misuse", (side.site, side.site), (stream,), names),
        kind=mistake.kind,
        hazard="",
        confidence=Confidence.CERTAIN.name.lower(),
        count=mistake.count,
        first=side,
        second=side,
        memory=_memory(block, True, 0, names),
        missing_edge=mistake.text,
        nearest_edge=None,
        repair=mistake.repair,
    )


def _side(part: Part, start: int, names: Names) -> Side:
    op, access = part.op, part.access
    low, high = span(_extent(access))
    return Side(
        op=op.name,
        access=access_word(access.mode),
        stream=names.timeline(op.timeline),
        device=names.device(op.timeline),
        thread=names.thread(op.thread),
        site=names.site(op.stack),
        stack=names.stack(op.stack),
        forward_site=names.site(op.forward) if op.forward != NONE else None,
        argument=access.argument,
        range=(low - start, high - start),
        confidence=Confidence(access.confidence).name.lower(),
    )


def _memory(block: Block | None, given_up: bool, size: int, names: Names) -> Memory:
    """The block at stake; memory of unknown owner is as large as the accesses to it."""
    if block is None:
        return Memory(size, None, None, "", "")
    return Memory(
        size=block.size,
        allocated=names.site(block.stack),
        freed=names.site(block.free_stack) if given_up and block.freed else None,
        owner=names.timeline(block.stream) if block.stream != NONE else "host",
        allocator=block.allocator,
    )


def _identity(
    kind: str, section: str, sites: tuple[Site | None, ...], births: tuple[int, ...], names: Names
) -> str:
    """A short id of kind, lines and the birthplaces of streams; the same in every run."""
    parts = [kind, section]
    for site in sites:
        where = (os.path.basename(site.file), str(site.line), site.function) if site else ("",)
        parts.extend(where)
    parts.extend(names.birthplace(number) for number in births)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{kind.partition('-')[0]}-{digest[:8]}"


def _extent(access: Access) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return access.address, access.run, access.sizes, access.strides
