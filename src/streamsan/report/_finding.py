"""One finding of the text report: both sides aligned, why, which memory, and the repair."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from streamsan.model.findings import Finding, Side, Site
from streamsan.report._kinds import count_text, size_text
from streamsan.report._layout import Layout
from streamsan.report._paint import Paint
from streamsan.report._view import View, package

_CALLERS = 2
"""Lines of a stack shown above the site itself, unless all are asked for."""


def body(page: Layout, finding: Finding, view: View) -> None:
    """Add everything below the heading of `finding` to the page."""
    alone = finding.first == finding.second
    sides = [finding.first] if alone else [finding.first, finding.second]
    labels = ["where"] if alone else ["first", "second"]
    rows = page.table([_facts(side, page.paint, several=_threads(sides)) for side in sides])
    for label, side, row in zip(labels, sides, rows, strict=True):
        page.blank()
        page.beside(label, [row, *_site(side, page.paint, view)])
    page.blank()
    page.labelled("why", [finding.missing_edge, finding.nearest_edge or ""])
    if finding.memory.size:
        page.labelled("memory", _memory(finding, view))
    _repair(page, finding.repair)
    page.labelled("found", [_found(finding)])


def _threads(sides: list[Side]) -> bool:
    return len({side.thread for side in sides}) > 1


def _facts(side: Side, paint: Paint, *, several: bool) -> list[str]:
    host = side.stream == "host"
    where = "host" if host else f"stream {side.stream}"
    if not host and side.device not in ("", "cuda:0"):
        where += f" on {side.device}"
    if (several or host) and side.thread:
        where += f", thread {side.thread}"
    argument = f" ({side.argument})" if side.argument else ""
    low, high = side.range
    span = f"bytes {low:,} to {high:,}" if high > low else ""
    access = side.access if side.confidence != "possible" else f"{side.access}?"
    return [paint("strong", access), paint("stream", where), side.op + argument, span]


def _site(side: Side, paint: Paint, view: View) -> Iterator[str]:
    if side.site is None:
        yield "at a line that was not recorded"
    else:
        yield from _code(side.site, paint, view)
    if side.forward_site:
        yield f"forward pass at {view.place(side.forward_site)} in {side.forward_site.function}"
    yield from _callers(side, paint, view)


def _code(site: Site, paint: Paint, view: View) -> Iterator[str]:
    yield f"{view.place(site)} in {site.function}"
    if source := view.source(site):
        yield paint("faint", f"{site.line:>5} │ ") + source


def _callers(side: Side, paint: Paint, view: View) -> Iterator[str]:
    """The rest of the stack: the user's frames by line, runs of library frames as a count."""
    if view.verbose:
        yield from (paint("faint", f"from {view.place(s)} in {s.function}") for s in side.stack)
        return
    start = side.stack.index(side.site) + 1 if side.site in side.stack else 0
    callers = 0
    for library, frames in groupby(side.stack[start:], view.is_library):
        run = list(frames)
        if library and run[-1] is not side.stack[-1]:
            names = dict.fromkeys(package(site.file) for site in run)
            yield paint("faint", f"from {count_text(len(run), 'frame')} in {', '.join(names)}")
        for site in () if library else run[: _CALLERS - callers]:
            yield f"from {view.place(site)} in {site.function}"
            callers += 1
        if callers == _CALLERS:
            return


def _memory(finding: Finding, view: View) -> list[str]:
    memory = finding.memory
    text = size_text(memory.size)
    if memory.allocated:
        text += f", allocated at {view.place(memory.allocated)}"
    if memory.freed:
        text += f", freed at {view.place(memory.freed)}"
    owner = f"owner {memory.owner}" if memory.owner else ""
    allocator = f"{memory.allocator} allocator" if memory.allocator else ""
    belongs = ", ".join(part for part in (owner, allocator) if part)
    return [f"{text}; {belongs}" if belongs else text]


def _repair(page: Layout, repairs: list[str]) -> None:
    for number, repair in enumerate(repairs):
        prefix = "or " if number and not repair.startswith("or ") else ""
        page.labelled("" if number else "repair", [prefix + repair])


def _found(finding: Finding) -> str:
    parts = [
        finding.hazard.replace("-", " "),
        count_text(finding.count, "time"),
        finding.confidence,
        f"id {finding.id}",
    ]
    return ", ".join(part for part in parts if part)
