"""The report for reading in a terminal."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

from streamsan.model.findings import Finding, Report
from streamsan.report._finding import body
from streamsan.report._kinds import count_text, title, verdict_text
from streamsan.report._layout import Layout
from streamsan.report._paint import Paint
from streamsan.report._possible import fold
from streamsan.report._view import View


def render(report: Report, view: View) -> str:
    """Every finding, at most `view.limit` of each sort, then what was hidden and the summary."""
    page = Layout(view.width, Paint(view.colour, view.unicode))
    for role, name, findings in (
        ("race", "race", report.races),
        ("latent", "latent race", report.latent),
        ("misuse", "misuse", report.misuse),
    ):
        shown = findings[: view.limit]
        for number, finding in enumerate(shown, 1):
            page.rule(
                role, f"{name} {number} of {len(findings)}: {title(finding.kind)}", finding.kind
            )
            body(page, finding, view)
            page.blank()
        _hidden(page, name, findings[len(shown) :])
    _possible(page, report.possible, view)
    _summary(page, report)
    return page.text()


def _possible(page: Layout, findings: list[Finding], view: View) -> None:
    """What may be a race comes last, folded."""
    folded = fold(findings, view)
    shown = folded[: view.limit]
    for number, group in enumerate(shown, 1):
        name = f"possible race {number} of {len(folded)}: {title(group.finding.kind)}"
        page.rule("latent", name, group.finding.kind)
        body(page, group.finding, view)
        if group.text:
            page.labelled("", [group.text])
        page.blank()
    _hidden(page, "possible race", [group.finding for group in folded[len(shown) :]])


def _hidden(page: Layout, name: str, findings: list[Finding]) -> None:
    if not findings:
        return
    kinds = Counter(finding.kind for finding in findings)
    page.line(f"… and {count_text(len(findings), f'more {name}')}; --all shows them:")
    for kind, count in kinds.most_common():
        page.line(f"  {count:>4}  {kind}  {title(kind)}")
    page.blank()


def _summary(page: Layout, report: Report) -> None:
    summary = report.summary
    found = report.latent or report.misuse or report.possible
    role = "race" if report.races else "latent" if found else "good"
    work = ", ".join(
        (
            count_text(summary.operations, "operation"),
            count_text(summary.accesses, "access", "accesses"),
            count_text(summary.streams, "stream"),
        )
    )
    verdict = page.paint(role, verdict_text(report))
    where = {"virtual": "virtual GPU", "cuda": "CUDA"}.get(summary.recorder, summary.recorder)
    if summary.engine:
        where += f", engine {summary.engine}"
    if summary.allocator:
        where += f", {summary.allocator} allocator"
    if summary.rank:
        where += f", rank {summary.rank}"
    page.line(f"streamsan: {verdict} · {work} · {where}, {summary.seconds:.1f} s")
    if not summary.complete:
        page.labelled("cut", ["The recording stops before the program's end; the rest is unknown."])
    _list(page, "unseen", summary.blind_spots)
    _list(page, "error", [f"StreamSan failed inside: {e}" for e in summary.internal_errors])


def _list(page: Layout, label: str, items: list[str]) -> None:
    for item, name in zip_longest(items, [label] if items else []):
        page.labelled(name or "", item.splitlines())
