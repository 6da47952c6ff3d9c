"""The library form, the environment form, and traces: one run, one report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.virtual.programs import ROOT, Done, Programs
from tools.labels import find_cases

WATCH = """\
import sys, torch, streamsan
def racy():
    side = torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.add_(1)
    x.mul_(2)
    torch.cuda.synchronize()
def clean():
    return (torch.zeros(8, device="cuda") + 1).sum().item()
def show(session):
    report = session.report
    lines = [(r.first.site.line, r.second.site.line) for r in report.races]
    print(lines, report.summary.complete, report.summary.internal_errors)
"""
RACY, CLEAN = "[(7, 8)] True []", "[] True []"

FORMS = {
    "several": (
        """
for function in (racy, clean, racy):
    with streamsan.watch(device="virtual") as session:
        function()
    show(session)
""",
        [RACY, CLEAN, RACY],
    ),
    "between sessions": (
        """
with streamsan.watch(device="virtual"):
    kept = torch.ones(4, device="cuda")
side = torch.cuda.Stream()
racy()  # nobody watches
with streamsan.watch(device="virtual", schedule="late") as session:
    with torch.cuda.stream(side):
        kept.add_(1)
    kept.mul_(2)
print([(r.first.stream, r.second.stream) for r in session.report.races])
print("missing.wait" not in session.render(), ".wait_stream(side)" in session.render())
""",
        ["[('side', 'default')]", "True True"],
    ),
    "exception": (
        """
try:
    with streamsan.watch(device="virtual") as session:
        racy()
        raise LookupError("mine")
except LookupError as error:
    print(error, session.report.summary.exit_status)
show(session)
with streamsan.watch(device="virtual") as session:
    clean()
show(session)
""",
        ["mine 1", RACY, CLEAN],
    ),
    "nested": (
        """
with streamsan.watch(device="virtual") as outer:
    with streamsan.watch(device="virtual") as inner:
        racy()
    print(inner is outer, len(inner.report.races))
    try:
        streamsan.Session(outer._options).start()
    except Exception as error:
        print(error)
show(outer)
""",
        [
            "True 1",
            "this process is being recorded already: stop that session first",
            RACY,
        ],
    ),
    "refused": (
        """
clean_first = streamsan.watch(device="virtual").__enter__()
clean_first.stop()
for options in ({"devices": 2}, {"memory": "1GiB"}, {"device": "cuda"}, {"schedule": "x"}):
    try:
        with streamsan.watch(**{"device": "virtual", **options}):
            print("no")
    except Exception as error:
        print(type(error).__name__)
with streamsan.watch(device="virtual") as session:
    racy()
show(session)
""",
        ["UsageError"] * 4 + [RACY],
    ),
    "notebook": (
        """
import linecache
cell = "with streamsan.watch(device='virtual') as session:\\n    racy()\\n    x = clean()\\n"
for name in ("<ipython-input-1-abc>", "/tmp/ipykernel_7/123.py", "<stdin>"):
    linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
    exec(compile(cell, name, "exec"), globals())
    show(session)
    print(session.report.races[0].second.stack[1].file == name, "from " + name in session.render())
""",
        [RACY, "True True"] * 3,
    ),
    "fail fast": (
        """
print("before", flush=True)
with streamsan.watch(device="virtual", fail_fast=True):
    racy()
    print("after")
""",
        ["before"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_watch(programs: Programs, form: str) -> None:
    text, expected = FORMS[form]
    done = programs.plain(WATCH + text)
    assert done.stdout.splitlines() == expected
    assert done.status == (66 if form == "fail fast" else 0)
    assert ("race 1 of 1" in done.stderr) == (form == "fail fast")


AUTO = "import streamsan.auto\n" + WATCH + "racy()\nprint(torch.cuda.device_count())\nsys.exit(3)\n"


def test_the_environment_form(programs: Programs) -> None:
    setting = "device=virtual,devices=2,schedule=late,format=json,output=r.json,trace=t"
    done = programs.plain(AUTO, STREAMSAN=setting)
    assert (done.status, done.stdout) == (3, "2\n")
    report = json.loads((programs.folder / "r.json").read_text())
    assert [(r["first"]["site"]["line"], r["second"]["site"]["line"]) for r in report["races"]] == [
        (8, 9)
    ]
    assert done.stderr == "streamsan: the trace is in t; check it again with: streamsan check t\n"
    assert _checked(programs, "t") == report


def test_both_forms_at_once(programs: Programs) -> None:
    done = programs.streamsan(
        "run", "--format", "github", programs.write(AUTO), STREAMSAN="device=virtual,devices=3"
    )
    assert (done.status, done.stdout) == (3, "3\n")
    assert done.stderr.count("::error ") == 1


def test_watch_inside_of_run(programs: Programs) -> None:
    done = programs.run(WATCH + FORMS["several"][0])
    assert (done.status, done.lines) == (66, [(7, 8)])
    assert done.stdout.splitlines() == ["[(7, 8)] False []"] * 3


# Traces


def _checked(programs: Programs, trace: str) -> dict[str, object]:
    check = programs.streamsan("check", "--format", "json", "--all", trace)
    report: dict[str, object] = json.loads(check.stdout)
    return report


def _cases() -> list[Path]:
    """Ten of the labelled programs, from all over."""
    cases = find_cases([ROOT / "cases"])
    found = [case.path for case in cases if case.only in ("", "virtual")]
    return found[:: len(found) // 10][:10]


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.stem)
def test_a_trace_gives_the_report_of_the_run(programs: Programs, case: Path) -> None:
    options = ("--device", "virtual", "--devices", "2", "--format", "json")
    done = programs.streamsan("run", *options, "-o", "r.json", "--trace", "t", str(case))
    live = json.loads((programs.folder / "r.json").read_text())
    assert _checked(programs, "t") == live
    assert done.status in (0, 66)
    assert live["summary"]["internal_errors"] == []
    assert programs.streamsan("report", "t").status == 0
    _assert_portable(live, case)


def _assert_portable(report: dict[str, object], case: Path) -> None:
    """Installed files are named relative to where they are installed, the program's as they are."""
    text = json.dumps(report)
    assert "site-packages" not in text
    files = {site["file"] for site in _sites(report)}
    assert {file for file in files if file.startswith("/")} <= {str(case)}


def _sites(value: object) -> list[dict[str, str]]:
    if isinstance(value, dict):
        own = [value] if "file" in value else []
        return own + [site for part in value.values() for site in _sites(part)]
    if isinstance(value, list):
        return [site for part in value for site in _sites(part)]
    return []


def test_sites_of_a_backward_pass_are_portable(programs: Programs) -> None:
    text = """
        import threading, torch
        side = torch.cuda.Stream()
        x = torch.ones(4, device="cuda", requires_grad=True)
        torch.cuda.synchronize()
        def work():
            with torch.cuda.stream(side):
                y = (x * x).sum()
            with torch.cuda.stream(torch.cuda.Stream()):
                x.data.add_(1)
            y.backward()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """
    done: Done = programs.run(text)
    files = {site["file"] for race in done.races for site in race["second"]["stack"]}
    assert {"torch/autograd/__init__.py", "torch/_tensor.py", "threading.py"} <= files
    assert {file for file in files if file.startswith("/")} == {str(programs.folder / "program.py")}
    path = str(programs.folder / "program.py")
    shown = programs.streamsan("run", "--device", "virtual", "-v", path)
    assert "from torch/autograd/__init__.py:" in shown.stderr
    assert "from threading.py:" in shown.stderr
