"""The verdicts of several detectors on labelled programs, side by side, as a Markdown page.

    python tools/compare.py [--output FILE] [--traces FOLDER] [--detector NAME ...] [COLLECTION ...]

A COLLECTION is a folder of programs; without one, ``cases/`` of this repository and, where it
exists, the collection beside the repository. The detectors, all that this machine can run unless
some are named: ``virtual``, StreamSan on its virtual GPU; ``cuda``, StreamSan on a real GPU;
``torch``, the sanitizer in torch (``tools/torch_sanitizer.py``), which needs a real GPU as well.
With ``--traces``, the runs of ``cuda`` leave what ``tools/traces.py place FOLDER`` wants.

A finding is held against the marked pairs of lines by the lines that it names: one that names no
line (0), as the sanitizer in torch does for work of a backward pass, still counts as right where
the other line is marked. Exit status 0 when StreamSan's verdicts are right and the same on every
device, else 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from tools import torch_sanitizer  # noqa: E402
from tools.forked import Task, run_all, streamsan  # noqa: E402
from tools.labels import Case, Pair, find_cases  # noqa: E402
from tools.score import Outcome, reported_pairs  # noqa: E402
from tools.traces import COLLECTIONS, finish, kept_in  # noqa: E402

SECONDS = 120.0
NO_REPORT = "no report"
_SUMS = (
    "detector", "programs", "right verdict", "marked pairs", "named by both lines", "by one line",
    "programs with a false alarm",
)  # fmt: skip
_LEGEND = """
A cell says what was found, and how many of the marked pairs with both of their lines; it is in bold
where it is wrong. `not run`: a program for the virtual GPU only, or for two devices.
"""
DETECTORS = {"virtual": "virtual GPU", "cuda": "real GPU", "torch": "torch's sanitizer"}


@dataclass(frozen=True)
class Verdict:
    """What a detector made of one program. `lines` are the marked pairs of which it names both
    lines, `line` those of which it names one, `false` what it reports beside them.
    """

    said: str
    marked: int
    lines: int
    line: int
    false: int

    @property
    def right(self) -> bool:
        """Something was found where something is marked, and nothing else."""
        if self.said == NO_REPORT:
            return False
        return (self.lines + self.line > 0) is (self.marked > 0) and not self.false

    @property
    def exact(self) -> bool:
        """Each marked pair was found, with both lines, and nothing else."""
        return self.right and self.lines == self.marked

    def __str__(self) -> str:
        """A cell of the table, in bold where it is wrong."""
        parts = [self.said + (f" {self.lines}/{self.marked}" if self.marked else "")]
        parts += [f"{self.line} by one line"] * (self.line > 0) + [f"{self.false} false"] * (
            self.false > 0
        )
        text = ", ".join(parts)
        return text if self.right else f"**{text}**"


def judge(case: Case, outcome: Outcome) -> Verdict:
    """Hold a report against the markers of `case`."""
    marked = case.race | case.latent | case.possible
    if outcome.report is None:
        return Verdict(NO_REPORT, len(marked), 0, 0, 0)
    races = reported_pairs(outcome.report, case, "races")
    latent = reported_pairs(outcome.report, case, "latent")
    possible = reported_pairs(outcome.report, case, "possible")
    found = races | latent | possible
    both = marked & (races | (latent & case.latent) | (possible & case.possible))
    partly = {pair for pair in marked - both if any(_names(one, pair) for one in found)}
    false = [
        one
        for one in found - marked - case.maybe
        if not any(_names(one, pair) for pair in marked | case.maybe)
    ]
    said = "race" if races else "latent" if latent else "possible" if possible else "clean"
    return Verdict(said, len(marked), len(both), len(partly), len(false))


def _names(found: Pair, marked: Pair) -> bool:
    """Whether a finding that lost a line names the other one of a marked pair."""
    return found[0] == 0 and found[1] in marked


def tasks(cases: Iterable[Case], detector: str, traces: Path | None = None) -> list[Task]:
    """What `detector` has to run on those of `cases` that it can: a real GPU stands alone. A trace
    of each of its runs is kept in `traces`.
    """
    if detector == "virtual":
        options: tuple[str, ...] = ("run", "--device", "virtual", "--devices")
        return [
            Task(case, streamsan, (*options, str(case.devices)))
            for case in cases
            if case.only in ("", "virtual")
        ]
    own = [case for case in cases if case.only in ("", "cuda") and case.devices == 1]
    if detector == "torch":
        return [Task(case, torch_sanitizer.main) for case in own]
    options = ("run", "--device", "cuda")
    if traces is None:
        return [Task(case, streamsan, options) for case in own]
    options += kept_in(traces)
    return [
        Task(case, streamsan, (*options, str(traces / f"{case.name}.streamsan"))) for case in own
    ]


Verdicts = dict[str, dict[str, Verdict]]
"""By the name of the detector and of the program."""


def verdicts(
    cases: Sequence[Case], detectors: Iterable[str], jobs: int, traces: Path | None = None
) -> Verdicts:
    """Run all detectors on all programs; `traces` as in `tasks`."""
    found: Verdicts = {}
    for detector in detectors:
        chosen = tasks(cases, detector, traces)
        found[detector] = {
            task.case.name: judge(task.case, outcome)
            for task, outcome in run_all(chosen, jobs, SECONDS)
        }
    return found


def summary(found: Verdicts) -> list[str]:
    """Sums by detector, a Markdown table."""
    lines = [f"| {' | '.join(_SUMS)} |", "|---" * len(_SUMS) + "|"]
    for detector, by_name in found.items():
        all_of = by_name.values()
        sums = (
            len(all_of),
            sum(verdict.right for verdict in all_of),
            sum(verdict.marked for verdict in all_of),
            sum(verdict.lines for verdict in all_of),
            sum(verdict.line for verdict in all_of),
            sum(verdict.false > 0 for verdict in all_of),
        )
        lines.append(f"| {DETECTORS[detector]} | {' | '.join(map(str, sums))} |")
    return lines


def rows(cases: Sequence[Case], found: Verdicts) -> list[str]:
    """A row for each program, a Markdown table."""
    names = [DETECTORS[detector] for detector in found]
    lines = [f"| {' | '.join(['program', 'expected', *names])} |", "|---" * (len(names) + 2) + "|"]
    for case in cases:
        marked = len(case.race | case.latent | case.possible)
        expected = case.fields.get("verdict", "") + (f", pairs: {marked}" if marked else "")
        cells = [str(by_name.get(case.name, "not run")) for by_name in found.values()]
        lines.append(f"| {' | '.join([f'`{case.name}`', expected, *cells])} |")
    return lines


def agree(found: Verdicts) -> bool:
    """Whether StreamSan's verdicts are exact and the same wherever it ran."""
    ours = [by_name for detector, by_name in found.items() if detector != "torch"]
    if not all(verdict.exact for by_name in ours for verdict in by_name.values()):
        return False
    first = ours[0] if ours else {}
    return all(by_name[name] == first[name] for by_name in ours for name in {*by_name} & {*first})


def page(collections: Sequence[tuple[str, Sequence[Case], Verdicts]], command: str) -> str:
    """The whole page."""
    parts = [
        "# Verdicts, side by side",
        "",
        f"{machine()}. Made with",
        "",
        f"    {command}",
        _LEGEND.rstrip(),
    ]
    for name, cases, found in collections:
        parts += ["", f"## `{name}`", "", *summary(found), "", *rows(cases, found)]
    return "\n".join(parts) + "\n"


def machine() -> str:
    """The device and the versions that a page was made with."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return f"{device}, Python {platform.python_version()}, torch {torch.__version__}"


def available() -> list[str]:
    """The detectors that this machine can run."""
    import torch

    return list(DETECTORS) if torch.cuda.is_available() else ["virtual"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    command = " ".join(["python tools/compare.py", *(arguments or sys.argv[1:])])
    folders = options.collections or [
        folder for folder in (ROOT / "cases", ROOT.parent / "shared" / "cases") if folder.is_dir()
    ]
    collections = []
    for folder in [folder.resolve() for folder in folders]:
        cases = find_cases([folder])
        traces = options.traces / _kind(folder) if options.traces else None
        found = verdicts(cases, options.detector or available(), options.jobs, traces)
        if traces and traces.exists():
            finish([task.case for task in tasks(cases, "cuda")], folder, traces)
        collections.append((os.path.relpath(folder, ROOT), cases, found))
        print("\n".join([f"{folder}", *summary(found)]), flush=True)
        if options.output:  # at once: the next collection may take long
            options.output.write_text(page(collections, command), encoding="utf-8")
    return int(not all(agree(found) for _, _, found in collections))


def _kind(folder: Path) -> str:
    """Which of the collections of traces a folder of programs is."""
    own = folder.resolve().is_relative_to(COLLECTIONS["cases"].resolve())
    return "cases" if own else "shared"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--detector", action="append", choices=list(DETECTORS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    parser.add_argument("--traces", type=Path, help="keep traces of the real GPU below this folder")
    parser.add_argument("collections", nargs="*", type=Path, metavar="COLLECTION")
    return parser


if __name__ == "__main__":
    sys.exit(main())
