"""Findings and the report they make up: schema ``streamsan-report/1``, as it is written to JSON."""

from __future__ import annotations

import msgspec

SCHEMA = "streamsan-report/1"


class Site(msgspec.Struct, frozen=True):
    """A source line of the program."""

    file: str
    line: int
    function: str


class Side(msgspec.Struct):
    """One of the two accesses of a finding.

    `access` is ``read``, ``write`` or ``read-write``; `stream` is a name, or ``host``; `range` is
    the byte range touched, relative to the memory's start (half open). `confidence` is that of
    this access alone, ``certain``, ``likely`` or ``possible``.
    """

    op: str
    access: str
    stream: str
    device: str
    thread: str
    site: Site | None
    stack: list[Site]
    forward_site: Site | None
    argument: str
    range: tuple[int, int]
    confidence: str = "certain"


class Memory(msgspec.Struct):
    """The block at stake. `owner` is its stream, `allocator` the allocator with its policy."""

    size: int
    allocated: Site | None
    freed: Site | None
    owner: str
    allocator: str


class Finding(msgspec.Struct):
    """A race, a latent race or a misuse; `first` was submitted before `second`.

    `hazard` is ``read-after-write``, ``write-after-read``, ``write-after-write`` or, for a
    misuse, empty. `confidence` is ``certain``, ``likely`` or ``possible``.
    """

    id: str
    kind: str
    hazard: str
    confidence: str
    count: int
    first: Side
    second: Side
    memory: Memory
    missing_edge: str
    nearest_edge: str | None
    repair: list[str]


class Summary(msgspec.Struct):
    """Figures of the run, and what the recorder could not see."""

    operations: int
    accesses: int
    streams: int
    seconds: float
    recorder: str
    blind_spots: list[str]
    internal_errors: list[str]
    complete: bool
    exit_status: int | None
    engine: str = ""
    allocator: str = ""
    rank: str = ""


class Report(msgspec.Struct):
    """All findings of a run.

    `possible` are races in which a side is a guess; they do not decide the verdict.
    """

    schema: str
    verdict: str
    races: list[Finding]
    latent: list[Finding]
    misuse: list[Finding]
    summary: Summary
    possible: list[Finding] = []
