"""Reports in every format; the text ones against golden files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamsan import report
from streamsan.model.findings import Report, Site
from streamsan.report import View
from tests.unit import samples

VIEW = View(sources=samples.SOURCES, base=samples.FOLDER)
Golden = Callable[[str, str], None]


def everything() -> Report:
    """A report with each sort of finding, and all that a summary may say."""
    found = samples.report(
        [samples.reuse(), samples.host_read()], [samples.reuse()], [samples.misuse()]
    )
    found.summary.blind_spots = ["kernels of custom extensions: 3 launches of ext.fused_norm"]
    return found


def test_text(golden: Golden) -> None:
    golden("report.txt", report.render(everything(), "text", VIEW))


def test_text_clean(golden: Golden) -> None:
    golden("clean.txt", report.render(samples.report(), "text", VIEW))


def test_text_trouble(golden: Golden) -> None:
    found = samples.report()
    found.summary.complete = False
    found.summary.internal_errors = ["checking: KeyError: 3 [shadow.py:12 touch] (and 4 more)"]
    golden("trouble.txt", report.render(found, "text", VIEW))


def test_text_with_whole_stacks(golden: Golden) -> None:
    view = replace(VIEW, verbose=True)
    golden("verbose.txt", report.render(samples.report([samples.reuse()]), "text", view))


def test_markdown(golden: Golden) -> None:
    golden("report.md", report.render(everything(), "markdown", VIEW))


def test_github(golden: Golden) -> None:
    golden("github.txt", report.render(everything(), "github", VIEW))


def test_json_is_the_schema() -> None:
    text = report.render(everything(), "json", VIEW)
    value = json.loads(text)
    assert value["schema"] == "streamsan-report/1"
    assert value["races"][0]["first"]["site"] == {
        "file": samples.TRAIN, "line": 8, "function": "step",
    }  # fmt: skip
    assert value["races"][0]["first"]["range"] == [0, 4096]
    assert value["races"][1]["nearest_edge"] is None
    assert [len(value[key]) for key in ("races", "latent", "misuse")] == [2, 1, 1]


def test_at_most_ten_and_then_counts() -> None:
    races = [samples.reuse() for _ in range(11)] + [samples.host_read(), samples.host_read()]
    text = report.render(samples.report(races), "text", VIEW)
    assert text.count("race 10 of 13") == 1
    assert "race 11 of 13" not in text
    assert "… and 3 more races; --all shows them:" in text
    assert re.search(r"2  R08-D2H-HOST-READ\b", text)
    assert "race 13 of 13" in report.render(
        samples.report(races), "text", replace(VIEW, limit=None)
    )


def test_colour_only_adds_codes() -> None:
    plain = report.render(everything(), "text", VIEW)
    painted = report.render(everything(), "text", replace(VIEW, colour=True))
    assert painted != plain
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain


def test_ascii_when_the_stream_cannot_do_more() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    view = report.view_for(stream, sources={}, base="", limit=10, verbose=False)
    found = everything()
    found.races[0].first.op = "naïve"
    report.emit(report.render(found, "text", view), stream)
    stream.seek(0)
    text = stream.read()
    assert "na\\xefve" in text
    assert "---" in text


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colour_on_a_terminal_unless_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def colour() -> bool:
        view = report.view_for(Terminal(), sources={}, base="", limit=10, verbose=False)
        return view.colour

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not colour()


def test_no_line_is_wider_than_the_page() -> None:
    text = report.render(everything(), "text", replace(VIEW, width=100))
    lines = [line for line in text.splitlines() if not line.startswith("streamsan:")]
    assert max(map(len, lines)) <= 100


def test_paths_outside_the_current_directory_stay_absolute() -> None:
    assert VIEW.path("/srv/project/a/b.py") == "a/b.py"
    assert VIEW.path("/srv/project2/b.py") == "/srv/project2/b.py"
    assert VIEW.path("/srv/project/./b.py") == "b.py"
    assert VIEW.path("/srv/project/../b.py") == "/srv/project/../b.py"
    assert VIEW.path("torch/nn/modules/module.py") == "torch/nn/modules/module.py"


def test_source_from_disk_where_the_trace_has_none(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("first\n  second\n")
    site = samples.line(2)
    assert View().source(Site(str(script), 2, "f")) == "second"
    assert View().source(site) == ""


def test_annotations_are_escaped() -> None:
    finding = samples.reuse()
    finding.missing_edge = "100%\nsure"
    text = report.render(samples.report([finding]), "github", VIEW)
    assert "100%25%0Asure" in text
    assert len(text.splitlines()) == 2


def test_annotations_of_misuse_and_the_count_of_all() -> None:
    finding = samples.misuse()
    finding.first.access, finding.first.op = "", "call"
    found = samples.report([], [samples.reuse()], [finding])
    found.summary.blind_spots = ["kernels:\n::error::3 launches"]
    lines = report.render(found, "github", VIEW).splitlines()
    assert "::call on side%0AThe event ready was never" in lines[0]
    assert lines[0].count("line=20") == 1
    assert ":20" not in lines[0]
    assert lines[2:] == [
        "StreamSan: 1 latent race, 1 misuse in 1,234 operations",
        "StreamSan: unseen: kernels: ::error::3 launches",
    ]
