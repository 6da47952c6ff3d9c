"""The scorer judges reports by the markers of a program, and the labels of a collection."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import score
from tools.labels import Case, LabelError, faults, read_case, table_rules, uncovered

PROGRAM = '''"""A title.

rule: {rule}
kind: R02-SLOT-WAR
verdict: {verdict}
source: own
twin: {twin}
why: because.
"""
{body}'''


def program(
    folder: Path,
    name: str = "s1_page_race",
    *,
    body: str = "first()  # RACE a\nsecond()  # RACE a\nthird()  # MAYBE m\nfourth()  # MAYBE m\n",
    rule: str = "S1",
    verdict: str = "race",
    twin: str = "s1_page_clean",
) -> Case:
    path = folder / f"{name}.py"
    path.write_text(PROGRAM.format(rule=rule, verdict=verdict, twin=twin, body=body))
    return read_case(path)


def pair(folder: Path, rule: str = "S1") -> list[Case]:
    clean = program(
        folder, "s1_page_clean", body="", rule=rule, verdict="clean", twin="s1_page_race"
    )
    return [program(folder, rule=rule), clean]


def report(case: Case, *pairs: tuple[int, int], key: str = "races") -> dict[str, Any]:
    def side(line: int) -> dict[str, Any]:
        return {"site": {"file": str(case.path), "line": line, "function": "main"}}

    return {key: [{"first": side(one), "second": side(other)} for one, other in pairs]}


def test_header_and_markers_are_read(tmp_path: Path) -> None:
    case = program(tmp_path, rule="E2, S1")
    assert (case.rules, case.twins, case.devices) == (("E2", "S1"), ("s1_page_clean",), 1)
    assert (set(case.race), set(case.maybe), set(case.latent)) == ({(10, 11)}, {(12, 13)}, set())


def test_a_marker_on_one_line_is_a_pair_with_itself(tmp_path: Path) -> None:
    assert program(tmp_path, body="both()  # RACE a\n").race == {(10, 10)}


def test_a_marker_on_three_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="RACE a stands on 3 lines"):
        program(tmp_path, body="f()  # RACE a\n" * 3)


def test_expected_pairs_in_either_order_and_maybe_pairs_pass(tmp_path: Path) -> None:
    case = program(tmp_path)
    outcome = score.Outcome(66, report(case, (11, 10), (12, 13)))
    assert score.judge(case, outcome).passed


def test_missed_and_invented_pairs_are_counted(tmp_path: Path) -> None:
    case = program(tmp_path)
    result = score.judge(case, score.Outcome(66, report(case, (10, 12))))
    assert (result.missed, result.false, result.passed) == ([(10, 11)], [(10, 12)], False)


def test_a_site_in_another_file_is_line_zero(tmp_path: Path) -> None:
    case = program(tmp_path)
    said = report(case, (10, 11))
    said["races"][0]["second"]["site"]["file"] = "elsewhere.py"
    assert score.judge(case, score.Outcome(66, said)).false == [(0, 10)]


def test_a_latent_pair_may_be_reported_as_a_race_but_not_the_reverse(tmp_path: Path) -> None:
    latent = program(tmp_path, body="f()  # LATENT a\ng()  # LATENT a\n", verdict="latent")
    assert score.judge(latent, score.Outcome(0, report(latent, (10, 11), key="latent"))).passed
    assert score.judge(latent, score.Outcome(66, report(latent, (10, 11)))).passed
    race = program(tmp_path)
    assert score.judge(race, score.Outcome(0, report(race, (10, 11), key="latent"))).missed


def test_a_possible_pair_may_be_reported_as_a_race_but_not_the_reverse(tmp_path: Path) -> None:
    body = "f()  # POSSIBLE a\ng()  # POSSIBLE a\n"
    possible = program(tmp_path, body=body, verdict="possible")
    said = report(possible, (10, 11), key="possible")
    assert score.judge(possible, score.Outcome(0, said)).passed
    assert score.judge(possible, score.Outcome(66, report(possible, (10, 11)))).passed
    assert score.judge(possible, score.Outcome(0, {"races": []})).missed == [(10, 11)]
    race = program(tmp_path)
    assert score.judge(race, score.Outcome(0, report(race, (10, 11), key="possible"))).missed
    clean = program(tmp_path, "s1_page_clean", body="f()\ng()\n", verdict="clean")
    assert score.judge(clean, score.Outcome(0, report(clean, (10, 11), key="possible"))).false


@pytest.mark.parametrize(("status", "passed"), [(66, True), (0, False), (1, False)])
def test_the_exit_status_must_fit_the_report(tmp_path: Path, status: int, passed: bool) -> None:
    case = program(tmp_path)
    assert score.judge(case, score.Outcome(status, report(case, (10, 11)))).passed is passed


def test_a_run_without_a_report_misses_everything(tmp_path: Path) -> None:
    result = score.judge(program(tmp_path), score.Outcome(1, None, "exit 1, no report: boom"))
    assert (result.missed, result.error) == ([(10, 11)], "exit 1, no report: boom")


def test_a_good_pair_has_no_faults(tmp_path: Path) -> None:
    assert faults(pair(tmp_path)) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"twin": "gone_clean"}, "its twin gone_clean does not exist"),
        ({"verdict": "clean"}, "its name does not end with _clean"),
        ({"verdict": "maybe"}, "verdict 'maybe' is none of"),
        ({"body": ""}, "its markers do not say race"),
    ],
)
def test_wrong_labels_are_told(tmp_path: Path, change: dict[str, str], fault: str) -> None:
    clean = pair(tmp_path)[1]
    assert any(fault in line for line in faults([program(tmp_path, **change), clean]))


def test_twins_must_name_one_another(tmp_path: Path) -> None:
    racy, _ = pair(tmp_path)
    other = program(tmp_path, "s1_page_clean", body="", verdict="clean", twin="s1_page_clean")
    assert "s1_page_race: its twin s1_page_clean does not name it" in faults([racy, other])


def test_each_rule_has_a_pair_or_is_excused(tmp_path: Path) -> None:
    cases = pair(tmp_path)
    rules = table_rules("| id | rule |\n|---|---|\n| S1 | one |\n| M4 | two |\n| A10 | three |\n")
    assert rules == ["S1", "M4", "A10"]
    assert uncovered(cases, rules, ["M4", "A10"]) == []
    assert uncovered(cases, rules, ["M4"]) == [
        "A10: no pair of programs, and not listed as without one"
    ]
    assert uncovered(cases, rules, rules) == ["S1: listed as without a program, and has a pair"]
    assert uncovered(cases, ["M4"], ["M4"]) == ["S1: not a rule"]


def test_a_rule_with_racy_programs_only_is_not_covered(tmp_path: Path) -> None:
    assert len(uncovered([program(tmp_path)], ["S1"], [])) == 1


def test_the_command_line_runs_a_detector_and_writes_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = pair(tmp_path)
    detector = tmp_path / "detector.txt"
    detector.write_text(
        "import json, sys\n"
        "path = sys.argv[-1]\n"
        "racy = path.endswith('race.py')\n"
        f"said = {report(cases[0], (10, 11))!r} if racy else {{}}\n"
        "open(sys.argv[sys.argv.index('--output') + 1], 'w').write(json.dumps(said))\n"
        "sys.exit(66 if racy else 0)\n"
    )
    command = f"{sys.executable} {detector}"
    out = tmp_path / "scores.json"
    assert score.main(["--command", command, "--json", str(out), str(tmp_path)]) == 0
    assert "2 of 2 programs passed; 1 of 1 pairs found; 0 false alarms" in capsys.readouterr().out
    assert [row["passed"] for row in json.loads(out.read_text())] == [True, True]


def test_a_detector_that_writes_nothing_fails_every_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair(tmp_path)
    command = f"{sys.executable} -c pass"
    assert score.main(["--command", command, "--jobs", "1", str(tmp_path)]) == 1
    assert "FAIL s1_page_race: exit 0, no report" in capsys.readouterr().out
