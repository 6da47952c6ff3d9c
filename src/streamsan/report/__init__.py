"""Reports: one file per format, all of them a function of the findings and of a `View`.

`FORMATS` names them; `render` makes the text and `emit` puts it on a stream that may be unable to
show every character.
"""

from __future__ import annotations

from typing import Protocol, TextIO

from streamsan.model.findings import Report
from streamsan.report import _github, _json, _markdown, _text
from streamsan.report._view import Sources, View, view_for

__all__ = ["FORMATS", "Render", "Sources", "View", "emit", "render", "view_for"]


class Render(Protocol):
    """A format: turns a report into text that ends with a line end."""

    def __call__(self, report: Report, view: View) -> str:
        """Return `report` as text; must not raise on any report that follows the schema."""


FORMATS: dict[str, Render] = {
    "text": _text.render,
    "json": _json.render,
    "markdown": _markdown.render,
    "github": _github.render,
}


def render(report: Report, form: str, view: View) -> str:
    """The text of `report` in the format named `form`, a key of `FORMATS`."""
    return FORMATS[form](report, view)


def emit(text: str, stream: TextIO) -> None:
    """Write `text`; what the stream's encoding lacks becomes an escape, not an error."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
