"""The account of backward passes on the virtual GPU, by option and by name; sessions in a row."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import streamsan
from streamsan import autograd
from streamsan.errors import UsageError
from tests.virtual.agree import on_virtual_gpu
from tests.virtual.programs import ROOT, Programs

EXAMPLE = str(ROOT / "examples" / "backward_other_stream.py")

TOWERS = """
import torch
one = torch.cuda.Stream()
two = torch.cuda.Stream()
weight = torch.ones(8, device="cuda", requires_grad=True)
for step in range(3):
    torch.cuda.synchronize()
    with torch.cuda.stream(one):
        left = weight * 2
    with torch.cuda.stream(two):
        right = weight * 3
    torch.cuda.synchronize()
    (left + right).sum().backward()
weight.exp().sum().backward()
"""


def _table(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_verbose_prints_each_distinct_pass_once(programs: Programs) -> None:
    path = programs.write(TOWERS)
    words = ("run", "--device", "virtual", "--engine", "torch-2.8", "--verbose", path)
    done = programs.streamsan(*words)
    account = done.stderr[done.stderr.index("backward pass at ") :]
    passes = _table(account.split("\n\n")[0])
    assert passes[0].endswith("program.py:12, engine torch-2.8")
    assert passes[2:] == [
        "default backward is called",
        "default SumBackward0",
        "default AddBackward0 event 1, event 2",
        "two MulBackward0 event 3 event 2 of default (A3)",
        "one MulBackward0 event 1 of default (A3)",
        "one sum for AccumulateGrad event 3 of two (A3)",
        "one AccumulateGrad event 4",
        "default goes on event 4 of one (A4)",
        "3 passes were like this one",
    ]
    assert "program.py:13, engine torch-2.8" in account


def test_without_an_engine_or_verbose_there_is_no_account(programs: Programs) -> None:
    path = programs.write(TOWERS)
    for option in ("--verbose", "--engine=torch-2.8"):
        done = programs.streamsan("run", "--device", "virtual", option, path)
        assert done.status == 0
        assert "backward pass at" not in done.stderr


def test_plan_draws_the_passes(programs: Programs) -> None:
    picture = programs.folder / "pass.svg"
    words = ("run", "--device", "virtual", "--engine", "torch-1.6", "--plan", str(picture))
    done = programs.streamsan(*words, EXAMPLE)
    assert done.status == 66
    texts = [e.text for e in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"ambient", "default", "side", "AccumulateGrad", "A3", "A4"} <= set(texts)
    assert "goes on, waits for nothing" in texts
    again = programs.streamsan(*words, EXAMPLE)
    assert (again.status, "exists already" in again.stderr) == (2, True)
    assert programs.streamsan(*words, "--force", EXAMPLE).status == 66


def test_plan_from_the_environment(programs: Programs) -> None:
    text = "import streamsan.auto\n" + Path(EXAMPLE).read_text(encoding="utf-8")
    picture = programs.folder / "pass.svg"
    setting = f"device=virtual,engine=torch-1.6,verbose,plan={picture}"
    done = programs.plain(text, STREAMSAN=setting)
    assert "engine torch-1.6" in done.stderr
    assert "backward pass at " in done.stderr
    assert picture.read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.parametrize("other", ["--output", "--trace"])
def test_plan_needs_a_file_of_its_own(programs: Programs, other: str) -> None:
    file = str(programs.folder / "x")
    done = programs.streamsan("run", "--plan", file, other, file, "-c", "pass")
    assert done.status == 2
    assert "both name" in done.stderr


@on_virtual_gpu("program")
def test_collecting_by_name() -> None:
    """``plans()`` collects while its block runs, and says where a pass was called."""
    side = torch.cuda.Stream()
    weight = torch.ones(8, device="cuda", requires_grad=True)
    with torch.cuda.stream(side):
        loss = weight.sum()
    with autograd.plans() as found:
        autograd.backward(loss, retain_graph=True, policy="torch-1.9")
    loss.backward()
    assert len(found) == 1
    plan = found.last
    assert (plan.policy, Path(plan.site.rsplit(":", 1)[0]).name) == (
        "torch-1.9",
        "test_engine_plan.py",
    )
    assert plan.streams == ["default", "side"]
    waits = [
        (row.stream, arrow.mark.stream, arrow.rule) for row in plan.rows for arrow in row.waits
    ]
    assert waits == [("side", "default", "A2"), ("default", "side", "A4")]


@on_virtual_gpu("late")
def test_a_policy_lasts_as_long_as_its_session() -> None:
    """Session after session of a process has its own; a call's own policy comes before both."""
    from streamsan.session import Session

    joined = Session.running
    assert joined is not None
    joined.stop()

    def races(engine: str, call: str | None = None) -> int:
        with streamsan.watch(device="virtual", memory="2GiB", engine=engine) as session:
            side = torch.cuda.Stream()
            weight = torch.ones(8, device="cuda", requires_grad=True)
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                loss = weight.sum()
                if call is None:
                    loss.backward()
                else:
                    autograd.backward(loss, policy=call)
            assert weight.grad is not None
            weight.grad.sum().item()
        assert session.report.summary.engine == engine
        return len(session.report.races)

    assert races("torch-1.9") == 0
    assert races("") == 1
    assert races("torch-1.6") == 0
    assert races("torch-1.6", call="torch-1.10") == 1
    with pytest.raises(UsageError, match=r"no engine policy 'torch-1\.7'"):
        races("torch-1.7")


def test_the_benchmark_of_the_first_report(programs: Programs) -> None:
    """It counts on the virtual GPU what it counts on a real one."""
    script = ROOT / "benchmarks" / "backward_race.py"
    table = programs.folder / "table.md"
    done = programs.plain_file(
        str(script), "--device", "virtual", "--runs", "2", "--output", str(table)
    )
    assert done.status == 0, done.stderr
    rows = [line.split("|")[2:4] for line in table.read_text(encoding="utf-8").splitlines()[4:]]
    counts = [tuple(int(cell) for cell in row) for row in rows]
    assert counts == [(0, 2), (2, 0), (2, 0), (0, 0), (0, 2), (0, 2)]
