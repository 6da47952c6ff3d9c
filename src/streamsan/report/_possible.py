"""Possible races, made bearable to read: those that two guesses make are folded by their memory.

Kernels whose parameters are all that is known of them may share a buffer that none of them writes.
Each two of their lines then make a possible race, and one of these tells what the others would.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsan.model.findings import Finding, Site
from streamsan.report._kinds import count_text
from streamsan.report._view import View


@dataclass(slots=True)
class Folded:
    """A finding that is shown, and how many others say the same of the same memory."""

    finding: Finding
    others: int = 0

    @property
    def text(self) -> str:
        """A sentence about the others; empty where there are none."""
        if not self.others:
            return ""
        pairs = count_text(self.others, "more pair")
        return f"{pairs} of lines like this one on the same memory, which --all shows"


def fold(findings: list[Finding], view: View) -> list[Folded]:
    """The possible races to show, those with one sure side first."""
    sure = [Folded(finding) for finding in findings if not _guesses(finding)]
    if view.limit is None:
        return sure + [Folded(finding) for finding in findings if _guesses(finding)]
    groups: dict[tuple[Site | None, str], Folded] = {}
    for finding in filter(_guesses, findings):
        key = finding.memory.allocated, finding.memory.owner
        if key in groups:
            groups[key].others += 1
        else:
            groups[key] = Folded(finding)
    return sure + list(groups.values())


def _guesses(finding: Finding) -> bool:
    return finding.first.confidence == finding.second.confidence == "possible"
