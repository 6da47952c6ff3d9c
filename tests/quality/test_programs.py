"""The runner of real programs: what passes, what is a fault, and what is skipped."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import programs
from tools.programs import Done, Program, Row

LINES = ("= loss 0x1.8p+1 (3)", "= loss 0x1.0p+1 (2)")
FINDING = {
    "kind": "R01-PROD-CONS",
    "first": {"op": "copy_", "site": {"file": "/somewhere/train.py", "line": 7}},
    "second": {"op": "relu", "site": None},
}


def done(status: int = 0, lines: tuple[str, ...] = LINES, errors: str = "", **report: Any) -> Done:
    return Done(status, lines, errors, 1.0, {"summary": {}, **report})


def row(watched: Done, bare: Done | None = None, again: Done | None = None) -> Row:
    first = bare or done()
    return programs.judge(Program(Path("p.py")), "late", first, watched, again or first)


def test_equal_figures_and_no_finding_pass() -> None:
    assert row(done()).faults == ()


@pytest.mark.parametrize(
    ("watched", "fault"),
    [
        (done(lines=("= loss 0x1.8p+1 (3)", "= loss 0x1.1p+1 (2)")), "1 of 2 lines differ"),
        (done(lines=LINES[:1]), "1 of 2 lines differ"),
        (done(3, errors="Traceback\nValueError: no\n\n"), "exit status 3: ValueError: no"),
        (done(66, races=[FINDING]), "exit status 66: nothing on stderr"),
        (done(latent=[FINDING]), "latent: R01-PROD-CONS copy_ at train.py:7 and relu at ?:None"),
        (done(summary={"internal_errors": ["KeyError"]}), "internal error: KeyError"),
        (Done(0, LINES, "", 1.0), "no report"),
    ],
)
def test_faults(watched: Done, fault: str) -> None:
    assert row(watched).faults[0] == fault


def test_figures_that_differ_without_us_are_no_fault() -> None:
    other = done(lines=("= loss 0x1p+0 (1)",))
    found = row(done(lines=()), again=other)
    assert (found.faults, found.figures) == ((), "2 differ (and from one bare run to the next)")


def test_a_bare_run_that_fails_or_prints_no_figure_is_a_fault() -> None:
    broken = done(1, errors="ImportError: x")
    assert row(broken, bare=broken).faults[0] == "bare run: exit status 1: ImportError: x"
    silent = done(lines=())
    assert row(silent, bare=silent).faults == ("bare run: exit status 0: nothing on stderr",)


def test_only_lines_marked_as_results_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text("print('took 3 s')\nprint('= loss 1')\nraise SystemExit(4)\n")
    ran = programs.run([sys.executable, str(path)], 60)
    assert (ran.status, ran.lines) == (4, ("= loss 1",))


def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text("import signal\nsignal.pause()\n")
    assert programs.run([sys.executable, str(path)], 0.5).status == 124


def test_header_and_missing_libraries(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text('"""Title.\n\nneeds: json, no_such_module, no.such.module\ndevice: cuda\n"""\n')
    program = programs.read_program(path)
    assert program.missing == ["no_such_module", "no.such.module"]
    assert program.cuda_only


def test_table_and_total() -> None:
    rows = [row(done()), row(done(latent=[FINDING])), Row("q.py", "", skipped="needs a real GPU")]
    lines = programs.table(rows).splitlines()
    assert [line.rsplit(" | ", 1)[1] for line in lines[2:]] == [
        "passed |",
        "latent: R01-PROD-CONS copy_ at train.py:7 and relu at ?:None |",
        "skipped: needs a real GPU |",
    ]
    assert programs.total(rows) == "1 of 2 runs of 1 programs passed; 1 skipped"


@pytest.mark.parametrize("path", [p.path for p in programs.find_programs([])], ids=lambda p: p.stem)
def test_every_program_says_what_it_needs(path: Path) -> None:
    own = {"common", "transformer", "torch", "__future__", *sys.stdlib_module_names}
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
    needs = {name.split(".")[0] for name in programs.read_program(path).needs}
    assert imported - own - {"PIL"} <= needs
