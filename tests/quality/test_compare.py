"""Verdicts side by side: what counts as right, and what the page and the exit status say."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import compare, torch_sanitizer
from tools.compare import Verdict, judge
from tools.labels import Case, read_case
from tools.score import Outcome

PROGRAM = '"""A title.\n\nkind: R02-SLOT-WAR\nverdict: {verdict}\n{more}"""\n{body}'


def program(folder: Path, verdict: str = "race", more: str = "", body: str = "") -> Case:
    path = folder / f"s1_page_{verdict}.py"
    marked = "a()  # RACE a\nb()  # RACE a\n" if verdict == "race" else "a()\nb()\n"
    path.write_text(PROGRAM.format(verdict=verdict, more=more, body=body or marked))
    return read_case(path)


def outcome(case: Case, *pairs: tuple[int, int], key: str = "races") -> Outcome:
    def side(line: int) -> dict[str, Any]:
        return {"site": {"file": str(case.path), "line": line} if line else None}

    found = [{"first": side(one), "second": side(other)} for one, other in pairs]
    return Outcome(66 if pairs else 0, {key: found})


@pytest.mark.parametrize(
    ("pairs", "said", "right", "exact"),
    [
        ([(6, 7)], "race 1/1", True, True),
        ([(0, 7)], "race 0/1, 1 by one line", True, False),
        ([(6, 7), (0, 7)], "race 1/1", True, True),
        ([], "**clean 0/1**", False, False),
        ([(6, 7), (6, 6)], "**race 1/1, 1 false**", False, False),
        ([(0, 5)], "**race 0/1, 1 false**", False, False),
    ],
)
def test_a_racy_program(
    tmp_path: Path, pairs: list[tuple[int, int]], said: str, right: bool, exact: bool
) -> None:
    case = program(tmp_path)
    verdict = judge(case, outcome(case, *pairs))
    assert (str(verdict), verdict.right, verdict.exact) == (said, right, exact)


def test_a_clean_program(tmp_path: Path) -> None:
    case = program(tmp_path, "clean")
    assert str(judge(case, outcome(case))) == "clean"
    assert str(judge(case, outcome(case, (0, 6)))) == "**race, 1 false**"
    assert str(judge(case, Outcome(1, None, "boom"))) == "**no report**"


def test_a_latent_pair_may_be_found_as_a_race(tmp_path: Path) -> None:
    case = program(tmp_path, "latent", body="a()  # LATENT a\nb()  # LATENT a\n")
    assert str(judge(case, outcome(case, (6, 7), key="latent"))) == "latent 1/1"
    assert str(judge(case, outcome(case, (6, 7)))) == "race 1/1"


def test_a_detector_runs_what_its_device_can(tmp_path: Path) -> None:
    case = program(tmp_path, more="devices: 2\n", body="a()  # RACE a\nb()  # RACE a\n")
    assert compare.tasks([case], "cuda") == compare.tasks([case], "torch") == []
    (task,) = compare.tasks([case], "virtual")
    assert task.options[-2:] == ("--devices", "2")


RIGHT, HALF, WRONG = (
    Verdict("race", 1, 1, 0, 0),
    Verdict("race", 1, 0, 1, 0),
    Verdict("clean", 1, 0, 0, 0),
)


def test_verdicts_agree_where_ours_are_exact_on_every_device() -> None:
    both = {"virtual": {"a": RIGHT, "b": RIGHT}, "cuda": {"a": RIGHT}}
    assert compare.agree({**both, "torch": {"a": WRONG}})
    assert not compare.agree({**both, "cuda": {"a": HALF}})
    assert not compare.agree({**both, "cuda": {"a": WRONG}})


def test_the_page_has_sums_and_a_row_for_each_program(tmp_path: Path) -> None:
    case = program(tmp_path)
    found = {"virtual": {case.name: RIGHT}, "torch": dict[str, Verdict]()}
    text = compare.page([("cases", [case], found)], "python tools/compare.py")
    assert "| virtual GPU | 1 | 1 | 1 | 1 | 0 | 0 |" in text
    assert "| torch's sanitizer | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| `s1_page_race` | race, pairs: 1 | race 1/1 | not run |" in text


def test_the_command_runs_programs_and_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "import torch\ntorch.ones(3, device='cuda').sum().item()\n"
    case, out = program(tmp_path, "clean", body=body), tmp_path / "page.md"
    words = ["--detector", "virtual", "--jobs", "1", "--output", str(out), str(tmp_path)]
    assert compare.main(words) == 0
    assert "| virtual GPU | 1 | 1 | 0 | 0 | 0 | 0 |" in capsys.readouterr().out
    assert f"| `{case.name}` | clean | clean |" in out.read_text()


def test_the_sanitizer_in_torch_is_reported_by_the_lines_of_the_program(tmp_path: Path) -> None:
    mine = tmp_path / "train.py"

    def access(*files: str) -> SimpleNamespace:
        frames = [(file, line, "f", None) for line, file in enumerate(files, 1)]
        return SimpleNamespace(stack_trace=traceback.StackSummary.from_list(frames))

    error = SimpleNamespace(
        previous_access=access("python", str(mine), "torch/nn.py"),
        current_access=access("torch/autograd.py"),
    )
    (race,) = torch_sanitizer.report([error], mine)["races"]
    assert race["first"]["site"] == {"file": str(mine), "line": 2}
    assert race["second"]["site"] is None
