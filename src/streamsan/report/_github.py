"""The report as annotations of a GitHub workflow: one per finding, on the second access's line."""

from __future__ import annotations

from streamsan.model.findings import Finding, Report, Side
from streamsan.report._kinds import count_text, title, verdict_text
from streamsan.report._possible import fold
from streamsan.report._view import View


def render(report: Report, view: View) -> str:
    """One workflow command a line; GitHub shows ten per step, so races come first."""
    lines = [_annotation("error", finding, view) for finding in report.races]
    lines += [_annotation("warning", finding, view) for finding in report.misuse + report.latent]
    lines += [_annotation("notice", group.finding, view) for group in fold(report.possible, view)]
    errors = report.summary.internal_errors
    lines += [f"::warning title=StreamSan internal error::{_data(error)}" for error in errors]
    return "\n".join([*lines, *_summary(report)]) + "\n"


def _summary(report: Report) -> list[str]:
    """Lines for the log: the verdict, and what it does not cover."""
    operations = count_text(report.summary.operations, "operation")
    lines = [f"StreamSan: {verdict_text(report)} in {operations}"]
    if not report.summary.complete:
        lines.append("StreamSan: cut: the recording stops before the program's end")
    # in one line each, as a line of its own could be a workflow command
    lines += [f"StreamSan: unseen: {' '.join(s.split())}" for s in report.summary.blind_spots]
    return lines


def _annotation(level: str, finding: Finding, view: View) -> str:
    site = finding.second.site or finding.first.site
    name = f"{finding.kind} {title(finding.kind)}"
    where = f"file={_property(view.path(site.file))},line={site.line}," if site else ""
    return f"::{level} {where}title={_property(name)}::{_data(_message(finding, view))}"


def _message(finding: Finding, view: View) -> str:
    sides = [_side(side, view) for side in (finding.first, finding.second)]
    return "\n".join([*dict.fromkeys(sides), finding.missing_edge, *finding.repair])


def _side(side: Side, view: View) -> str:
    """One access; or the call of a misuse, whose place is that of the annotation."""
    if not side.access:
        return f"{side.op} on {side.stream}"
    place = f" at {view.place(side.site)}" if side.site else ""
    return f"{side.access} by {side.op} on {side.stream}{place}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
