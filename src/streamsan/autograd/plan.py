"""The account of a backward pass: its nodes on their streams, and the events between them.

`plans()` collects the passes of this process while its block runs. Each is a `Plan`: ``str(plan)``
is a table in the order of submission, ``plan.svg()`` a picture of the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ROWS = 60
"""Rows of one pass that its texts and pictures show."""

KEPT = 8
"""Passes that a collection keeps; further ones are counted."""


@dataclass
class Row:
    """Something that happens on a stream.

    `kind` is ``call`` (the pass begins), ``before`` (the work of a stream before it), ``node``,
    ``sum`` (of two gradients for one input of a node), ``end`` (a stream goes on after it), or
    ``left`` (the caller's stream goes on, and nothing lets it wait).
    """

    kind: str
    label: str
    stream: str
    records: list[int] = field(default_factory=list)
    waits: list[Arrow] = field(default_factory=list)


@dataclass(frozen=True)
class Mark:
    """An event of the pass: its number, its stream, and the row that it is recorded after."""

    number: int
    stream: str
    row: int


@dataclass(frozen=True)
class Arrow:
    """A wait for an event, with the rule that asks for it."""

    mark: Mark
    rule: str


class Plan:
    """One pass. `policy` is the policy's name, `site` says where backward was called.

    A row belongs to a `key`, a node for instance; waits for it may be issued before it is there.
    """

    def __init__(self, policy: str, site: str, remark: str = "") -> None:
        self.policy = policy
        self.site = site
        self.remark = remark
        self.rows: list[Row] = []
        self._last: dict[str, int] = {}
        self._row_of: dict[Hashable, int] = {}
        self._early: dict[Hashable, list[Arrow]] = {}
        self._events = 0

    @property
    def streams(self) -> list[str]:
        """The streams that take part, in order of appearance."""
        return list(dict.fromkeys(row.stream for row in self.rows))

    def add(self, kind: str, label: str, stream: str, key: Hashable = None) -> int:
        """A new row; its number."""
        number = len(self.rows)
        self.rows.append(Row(kind, label, stream, waits=self._early.pop(key, [])))
        self._last[stream] = number
        self._row_of[key] = number
        return number

    def last(self, stream: str) -> int:
        """The last row of a stream; one for its earlier work where there is none."""
        if stream not in self._last:
            self.add("before", "earlier work", stream, ("before", stream))
        return self._last[stream]

    def mark(self, stream: str, row: int | None = None) -> Mark:
        """An event is recorded on a stream, after a row of it (by default the last)."""
        row = self.last(stream) if row is None else row
        self._events += 1
        self.rows[row].records.append(self._events)
        return Mark(self._events, stream, row)

    def wait(self, mark: Mark, rule: str, key: Hashable) -> None:
        """The row of `key`, there already or to come, waits for an event."""
        row = self._row_of.get(key)
        arrows = self._early.setdefault(key, []) if row is None else self.rows[row].waits
        arrows.append(Arrow(mark, rule))

    def seal(self) -> None:
        """The pass is over: forget its keys, which the next pass may use for other nodes."""
        self._row_of.clear()
        self._early.clear()

    def __str__(self) -> str:
        head = f"backward pass at {self.site}, engine {self.policy}"
        if self.remark:
            head += f" ({self.remark})"
        lines = [("stream", "what", "records", "waits for")]
        lines += [_line(row) for row in self.rows[:ROWS]]
        widths = [max(len(line[column]) for line in lines) for column in range(4)]
        table = [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
            for line in lines
        ]
        if len(self.rows) > ROWS:
            table.append(f"  … {len(self.rows) - ROWS:,} more")
        return "\n".join([head, *table])

    def svg(self) -> str:
        """The pass as an SVG picture: a column for each stream, an arrow for each wait."""
        from streamsan.autograd.picture import picture

        return picture([self])


def _line(row: Row) -> tuple[str, str, str, str]:
    waits = [f"event {a.mark.number} of {a.mark.stream} ({a.rule})" for a in row.waits]
    if row.kind == "left":
        waits = ["nothing"]
    records = ", ".join(f"event {number}" for number in row.records)
    return row.stream, row.label, records, ", ".join(waits)


class Plans:
    """Passes that were collected: each distinct one once, with how often it came."""

    def __init__(self) -> None:
        self._kept: dict[str, Plan] = {}
        self._counts: dict[str, int] = {}
        self.left_out = 0
        """Passes that were distinct from those kept, for which there was no more room."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._kept.values())

    @property
    def last(self) -> Plan:
        """The one of the kept passes that was new last. Raises IndexError where there is none."""
        return list(self._kept.values())[-1]

    def add(self, plan: Plan) -> None:
        """Keep a pass that is over."""
        text = str(plan)
        if text not in self._kept and len(self._kept) >= KEPT:
            self.left_out += 1
            return
        self._kept.setdefault(text, plan)
        self._counts[text] = self._counts.get(text, 0) + 1

    def __str__(self) -> str:
        parts = [
            text + (f"\n  {count:,} passes were like this one" if count > 1 else "")
            for text, count in self._counts.items()
        ]
        if self.left_out:
            parts.append(f"{self.left_out:,} passes more were different, and are not shown")
        return "\n\n".join(parts) or "no backward pass was run"

    def svg(self) -> str:
        """All passes in one SVG picture, one below the other."""
        from streamsan.autograd.picture import picture

        return picture(list(self))


_open: list[Plans] = []


def collect() -> Plans:
    """Collect the passes of all threads from here on."""
    found = Plans()
    _open.append(found)
    return found


@contextmanager
def plans() -> Iterator[Plans]:
    """Collect the passes of all threads while the block runs."""
    found = collect()
    try:
        yield found
    finally:
        _open.remove(found)


def wanted() -> bool:
    """Whether anybody collects."""
    return bool(_open)


def collected(plan: Plan) -> None:
    """A pass is over."""
    for found in _open:
        found.add(plan)
