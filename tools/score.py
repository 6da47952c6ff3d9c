"""Scores a detector on labelled programs: races found and missed, false alarms, exit status.

    python tools/score.py [--command "streamsan run"] [--extra "--device virtual"] [PATH ...]

A PATH is a program or a folder of them; without one it is ``cases/`` of this repository, whose
labels and coverage of the rule book are then checked first. For each program the command
``COMMAND EXTRA --format json --output OUT PROGRAM`` is run, with ``--devices N`` where the
program's header asks for several. Programs that the command's ``--device`` cannot see are left
out. Exit status 0 when every program passes and no label is
wrong, else 1. The format of the programs is described in ``cases/README.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from tools.labels import (  # noqa: E402
    Case,
    LabelError,
    Pair,
    faults,
    find_cases,
    table_rules,
    uncovered,
)

RACES_STATUS = 66


@dataclass(frozen=True)
class Outcome:
    """What a detector said about a program: its report, or the `error` that left none."""

    status: int
    report: dict[str, Any] | None
    error: str = ""


@dataclass
class Score:
    """How one program was judged. Pairs are line numbers; 0 is a line outside the program."""

    case: str
    rule: str
    kind: str
    expected: int
    missed: list[Pair] = field(default_factory=list)
    false: list[Pair] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Every expected pair was found, nothing else reported, the exit status right."""
        return not (self.missed or self.false or self.error)


Runner = Callable[[Case], Outcome]
"""Runs a detector on one program."""


def command_runner(command: Sequence[str], timeout: float, traces: Path | None = None) -> Runner:
    """A runner that starts `command` as a process and gives it `timeout` seconds.

    With `traces`, a folder, each program's trace is kept there under its name.
    """

    def run(case: Case) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "report.json"
            options = ["--format", "json", "--output", str(out)]
            if traces is not None:
                options += ["--force", "--trace", str(traces / f"{case.name}.streamsan")]
            if case.devices > 1:
                options += ["--devices", str(case.devices)]
            line = [*command, *options, str(case.path)]
            try:
                done = subprocess.run(
                    line, capture_output=True, text=True, timeout=timeout, check=False
                )
            except subprocess.TimeoutExpired:
                return Outcome(-1, None, f"no end within {timeout:.0f} s")
            if not out.exists():
                last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
                return Outcome(
                    done.returncode, None, f"exit {done.returncode}, no report: {last[0][:200]}"
                )
            return Outcome(done.returncode, json.loads(out.read_text(encoding="utf-8")))

    return run


def score_case(case: Case, run: Runner) -> Score:
    """Run a detector on `case` and judge what it said."""
    start = perf_counter()
    outcome = run(case)
    score = judge(case, outcome)
    score.seconds = round(perf_counter() - start, 2)
    return score


def judge(case: Case, outcome: Outcome) -> Score:
    """Compare the pairs of lines in a report with those that the markers of `case` ask for.

    A latent or a possible race may be reported as a race. The exit status must be 66 when the
    report holds races and 0 when it does not; with latent findings alone, either.
    """
    want = case.race | case.latent | case.possible
    rule = (case.rules or ("none",))[0]
    score = Score(case.name, rule, case.fields.get("kind", ""), len(want), error=outcome.error)
    if outcome.report is None:
        score.missed = sorted(want)
        return score
    races = reported_pairs(outcome.report, case, "races")
    latent = reported_pairs(outcome.report, case, "latent")
    possible = reported_pairs(outcome.report, case, "possible")
    missed = (case.race - races) | (case.latent - latent - races)
    score.missed = sorted(missed | (case.possible - possible - races))
    score.false = sorted((races | latent | possible) - want - case.maybe)
    allowed = {RACES_STATUS} if races else {0, RACES_STATUS} if latent else {0}
    if outcome.status not in allowed:
        score.error = f"exit status {outcome.status}"
    return score


def reported_pairs(report: dict[str, Any], case: Case, key: str) -> set[Pair]:
    """Pairs of lines of the findings of a report under ``races``, ``latent`` or ``possible``."""
    pairs = set()
    for finding in report.get(key, []):
        numbers = []
        for side in ("first", "second"):
            site = finding[side].get("site") or {}
            same = os.path.basename(site.get("file") or "") == case.path.name
            numbers.append(int(site.get("line") or 0) if same else 0)
        pairs.add((min(numbers), max(numbers)))
    return pairs


def table(scores: Iterable[Score], key: str) -> str:
    """Sums by the attribute `key` (``rule`` or ``kind``), a text table."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        groups[getattr(score, key)].append(score)
    head = f"{key:20} {'programs':>8} {'passed':>7} {'pairs':>6} {'found':>6} {'false':>6}"
    lines = [head]
    for name, group in sorted(groups.items()):
        pairs = sum(score.expected for score in group)
        found = pairs - sum(len(score.missed) for score in group)
        false = sum(len(score.false) for score in group)
        passed = sum(score.passed for score in group)
        lines.append(f"{name:20} {len(group):8} {passed:7} {pairs:6} {found:6} {false:6}")
    return "\n".join(lines)


def label_faults(folder: Path, rule_book: Path) -> list[str]:
    """What is wrong with the labels of the collection in `folder` and its coverage of the rules."""
    cases = find_cases([folder])
    rules = table_rules(rule_book.read_text(encoding="utf-8"))
    excused = table_rules((folder / "README.md").read_text(encoding="utf-8"))
    return faults(cases) + uncovered(cases, rules, excused)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        cases = find_cases(options.paths or [ROOT / "cases"])
        wrong = [] if options.paths else label_faults(ROOT / "cases", ROOT / "docs" / "rules.md")
    except LabelError as error:
        print(error, file=sys.stderr)
        return 1
    command = shlex.split(options.command) + shlex.split(options.extra)
    if shutil.which(command[0]) is None:
        print(f"there is no command {command[0]!r} here: name another one with --command")
        return 1
    cases = [case for case in cases if case.devices <= options.devices]
    cases = [case for case in cases if case.only in ("", _device(command))]
    runner = command_runner(command, options.timeout, options.traces)
    with ThreadPoolExecutor(options.jobs) as pool:
        scores = list(pool.map(lambda case: score_case(case, runner), cases))
    for fault in wrong:
        print(f"LABEL {fault}")
    for score in scores:
        if not score.passed:
            print(f"FAIL {score.case}: {_failure(score)}")
    print("\n".join([table(scores, "rule"), "", table(scores, "kind"), "", _total(scores)]))
    if options.json:
        rows = [{**asdict(score), "passed": score.passed} for score in scores]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(bool(wrong) or not all(score.passed for score in scores))


def _device(command: Sequence[str]) -> str:
    """The ``--device`` of a command; without one, what is there without a GPU."""
    return command[command.index("--device") + 1] if "--device" in command else "virtual"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", default="streamsan run", help="the detector to score")
    parser.add_argument("--extra", default="", help="more options for it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one program")
    parser.add_argument("--devices", type=int, default=8, help="leave out what needs more devices")
    parser.add_argument("--traces", type=Path, help="keep a trace of each program in this folder")
    parser.add_argument("--json", type=Path, help="write the scores to this file as well")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    return parser


def _failure(score: Score) -> str:
    parts = [score.error]
    parts += [
        f"{name} {pairs}"
        for name, pairs in (("missed", score.missed), ("false", score.false))
        if pairs
    ]
    return "; ".join(part for part in parts if part)


def _total(scores: list[Score]) -> str:
    pairs = sum(score.expected for score in scores)
    found = pairs - sum(len(score.missed) for score in scores)
    false = sum(len(score.false) for score in scores)
    passed = sum(score.passed for score in scores)
    programs = f"{passed} of {len(scores)} programs passed"
    return f"{programs}; {found} of {pairs} pairs found; {false} false alarms"


if __name__ == "__main__":
    sys.exit(main())
