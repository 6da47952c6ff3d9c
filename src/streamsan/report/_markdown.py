"""The report as Markdown, for a job summary or an issue."""

from __future__ import annotations

from streamsan.model.findings import Finding, Report, Side
from streamsan.report._kinds import count_text, size_text, title
from streamsan.report._possible import fold
from streamsan.report._view import View


def render(report: Report, view: View) -> str:
    """A heading, a table of both sides for each finding, and the summary."""
    races = len(report.races)
    lines = [f"# StreamSan: {count_text(races, 'race') if races else 'no races'}", ""]
    sorts = (("Race", report.races), ("Latent race", report.latent), ("Misuse", report.misuse))
    for name, findings in sorts:
        for number, finding in enumerate(findings[: view.limit], 1):
            lines += _finding(f"{name} {number}", finding, view)
        if hidden := len(findings) - len(findings[: view.limit]):
            lines += [f"{hidden} more not shown.", ""]
    return "\n".join(lines + _possible(report, view) + _summary(report)) + "\n"


def _possible(report: Report, view: View) -> list[str]:
    """What may be a race comes last, folded."""
    folded, lines = fold(report.possible, view), []
    for number, group in enumerate(folded[: view.limit], 1):
        lines += _finding(f"Possible race {number}", group.finding, view)
        lines += [group.text, ""] if group.text else []
    if hidden := len(folded) - len(folded[: view.limit]):
        lines += [f"{hidden} more not shown.", ""]
    return lines


def _finding(name: str, finding: Finding, view: View) -> list[str]:
    sides = [finding.first, finding.second]
    if finding.first == finding.second:
        sides.pop()
    hazard = f"{finding.hazard.replace('-', ' ')}, " if finding.hazard else ""
    lines = [
        f"## {name}: {title(finding.kind)}",
        "",
        f"`{finding.kind}`, {hazard}{finding.confidence}, seen {count_text(finding.count, 'time')}",
        "",
        "| | access | stream | operation | bytes | line | source |",
        "|---|---|---|---|---|---|---|",
        *(_row(n, side, view) for n, side in zip(("first", "second"), sides, strict=False)),
        "",
        finding.missing_edge,
        "",
    ]
    if finding.nearest_edge:
        lines += [f"Nearest order: {finding.nearest_edge}", ""]
    if finding.memory.size:
        lines += [_memory(finding, view), ""]
    return lines + [f"- {repair}" for repair in finding.repair] + [""]


def _row(name: str, side: Side, view: View) -> str:
    place = f"`{view.place(side.site)}`" if side.site else "?"
    source = f"`{view.source(side.site)}`" if side.site and view.source(side.site) else ""
    low, high = side.range
    cells = (
        name,
        side.access,
        f"{side.stream} ({side.device})",
        f"`{side.op}`",
        f"{low}..{high}",
        place,
        source,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _memory(finding: Finding, view: View) -> str:
    memory = finding.memory
    text = f"Memory: {size_text(memory.size)}, owner {memory.owner} ({memory.allocator})"
    if memory.allocated:
        text += f", allocated at `{view.place(memory.allocated)}`"
    if memory.freed:
        text += f", freed at `{view.place(memory.freed)}`"
    return text + "."


def _summary(report: Report) -> list[str]:
    summary = report.summary
    counts = (
        count_text(summary.operations, "operation"),
        count_text(summary.accesses, "access", "accesses"),
        count_text(summary.streams, "stream"),
        f"{summary.seconds:.1f} s",
    )
    engine = f", engine {summary.engine}" if summary.engine else ""
    allocator = f", {summary.allocator} allocator" if summary.allocator else ""
    rank = f", rank {summary.rank}" if summary.rank else ""
    lines = [f"{', '.join(counts)}, recorder {summary.recorder}{engine}{allocator}{rank}."]
    if not summary.complete:
        lines.append("The recording is incomplete.")
    lines += [f"- Not seen: {spot}" for spot in summary.blind_spots]
    return lines + [f"- Internal error: {error}" for error in summary.internal_errors]
