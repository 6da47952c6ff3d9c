"""The report as JSON, exactly the schema ``streamsan-report/1``: see `streamsan.model.findings`."""

from __future__ import annotations

import msgspec

from streamsan.model.findings import Report
from streamsan.report._view import View


def render(report: Report, view: View) -> str:
    """The report as indented JSON: every finding, and paths as they were recorded."""
    del view
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
