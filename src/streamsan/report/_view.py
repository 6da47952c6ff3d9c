"""How a report is to look: what the reader's terminal can do, and what the reader asked for."""

from __future__ import annotations

import linecache
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TextIO

from streamsan.model.findings import Site

Sources = Mapping[tuple[str, int], str]
"""Source lines by file and line number."""


@dataclass(frozen=True)
class View:
    """How to show a report.

    `sources` are the lines of the program as they were when it ran; a line that is not there is
    read from disk. Paths below `base` are shown relative to it. `limit` is the most findings of
    one sort to show (None: all). `width` is in columns.
    """

    sources: Sources = field(default_factory=dict)
    base: str = ""
    limit: int | None = 10
    colour: bool = False
    unicode: bool = True
    width: int = 100
    verbose: bool = False

    def path(self, file: str) -> str:
        """`file`, relative where it lies below `base`."""
        if not (self.base and os.path.isabs(file)):
            return file
        relative = os.path.relpath(file, self.base)
        return file if relative.startswith(os.pardir + os.sep) else relative

    def is_library(self, site: Site) -> bool:
        """Whether a site is in an installed package, in Python itself, or in no file at all.

        Recorders name installed files relative to where they are installed, and those of the
        program as Python does: absolute, but for code that was compiled under a name of its own.
        """
        if site.file.startswith("<"):
            return site.file.startswith("<frozen")
        return not os.path.isabs(site.file) and (site.file, site.line) not in self.sources

    def place(self, site: Site) -> str:
        """A site as ``file:line``, the form that terminals and editors turn into a link."""
        return f"{self.path(site.file)}:{site.line}"

    def source(self, site: Site) -> str:
        """The line at `site`, stripped; empty where nobody has it."""
        known = self.sources.get((site.file, site.line))
        if self.is_library(site):
            return ""
        return (known or linecache.getline(site.file, site.line)).strip()


def view_for(
    stream: TextIO, *, sources: Sources, base: str, limit: int | None, verbose: bool
) -> View:
    """The view for text that goes to `stream`: colour on a terminal only, and ``NO_COLOR``."""
    terminal = stream.isatty()
    columns = shutil.get_terminal_size((100, 24)).columns if terminal else 100
    return View(
        sources=sources,
        base=base,
        limit=limit,
        colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        unicode=_can_encode(stream),
        width=max(60, min(columns, 100)),
        verbose=verbose,
    )


def _can_encode(stream: TextIO) -> bool:
    try:
        "─│·…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def package(file: str) -> str:
    """The top package that a library file belongs to, or ``python``."""
    top = PurePath(file).parts[0].removesuffix(".py")
    return "python" if top.startswith("<") or top in sys.stdlib_module_names else top
