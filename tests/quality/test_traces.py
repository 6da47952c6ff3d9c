"""Traces of labelled and real programs, recorded on a real GPU, have the verdicts of their labels.

``python tools/traces.py`` records them and puts them here; the report of a trace needs neither
torch nor a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsan.model.records import SiteDef
from streamsan.trace import read
from tools.labels import read_case
from tools.score import ROOT
from tools.traces import (
    COLLECTIONS,
    LIMIT,
    PLACE,
    expected,
    faults,
    labels,
    place,
    record,
    traces,
)

TRACES = [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in traces(PLACE)]


def test_there_are_traces_of_a_real_gpu() -> None:
    found = traces(PLACE)
    assert len(found) > 100
    assert sum(path.stat().st_size for path in found) < LIMIT


@pytest.mark.parametrize("path", TRACES)
def test_a_trace_of_the_gpu_has_the_verdict_of_its_program(path: Path) -> None:
    assert faults(path) == []


@pytest.mark.parametrize("path", TRACES)
def test_a_trace_names_no_folder_of_the_machine_it_is_from(path: Path) -> None:
    files = [one.file for one in read(path) if isinstance(one, SiteDef)]
    assert files
    assert not [file for file in files if file.startswith("/")]


def testlabels_that_were_kept_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = read_case(ROOT / "cases" / "h1_print_race.py")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "expected.json").write_text(json.dumps({case.name: labels(case)}))
    monkeypatch.setitem(COLLECTIONS, "shared", tmp_path / "nowhere")
    found = expected(tmp_path / "shared" / f"{case.name}.streamsan")
    assert (found.race, found.latent, found.maybe) == (case.race, case.latent, case.maybe)
    assert found.fields["kind"] == case.fields["kind"]


def test_what_is_recorded_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the virtual GPU, which everybody has: that is then the only thing wrong."""
    own = tmp_path / "own"
    own.mkdir()
    for name in ("h1_print_race.py", "h1_print_clean.py"):
        (own / name).write_bytes((ROOT / "cases" / name).read_bytes())
    monkeypatch.setitem(COLLECTIONS, "cases", tmp_path / "nowhere")
    monkeypatch.setitem(COLLECTIONS, "shared", own)
    monkeypatch.setattr("tools.traces.PROGRAMS", {"checkpointing.py": "1"})
    assert record(tmp_path / "found", 2, "virtual") == []
    found = traces(tmp_path / "found")
    assert [path.stem for path in found] == ["checkpointing", "h1_print_clean", "h1_print_race"]
    assert all(faults(path) == ["not from a real GPU"] for path in found)
    assert (tmp_path / "found" / "shared" / "expected.json").exists()


def test_a_trace_of_another_verdict_is_not_put_in_place(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    racy = PLACE / "cases" / "h1_print_race.streamsan"
    (tmp_path / "cases" / "h1_print_clean.streamsan").write_bytes(racy.read_bytes())
    before = traces(PLACE)
    assert [fault.partition(": ")[0] for fault in place(tmp_path)] == ["cases/h1_print_clean"]
    assert traces(PLACE) == before
    assert "0 traces" in place(tmp_path / "cases")[0]
