"""Records traces on a real GPU, and puts them where the tests check them.

    python tools/traces.py record FOLDER     # on the machine with the GPU
    python tools/traces.py programs FOLDER   # there, the real programs alone
    python tools/traces.py place FOLDER      # anywhere: replaces tests/traces/h200

``tools/compare.py --traces FOLDER`` records those of the labelled programs on the way.

Recorded are the labelled programs of ``cases/`` and, where it exists, of the collection beside the
repository, and a few steps of the real programs of ``PROGRAMS``. Each kind has a folder of its own:
``cases``, ``shared`` and ``programs``. What the markers of the shared programs say is kept beside
their traces, in ``expected.json``: that collection does not travel with the repository.

`place` checks each trace first, and refuses those that do not have the verdict of their program.
Exit status 0 when all went well, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from streamsan.detect import Checker  # noqa: E402
from streamsan.errors import TraceError  # noqa: E402
from streamsan.trace import read  # noqa: E402
from tools.forked import Task, run_all, streamsan  # noqa: E402
from tools.labels import Case, find_cases  # noqa: E402
from tools.portable import make_portable  # noqa: E402
from tools.score import Outcome, judge  # noqa: E402

PLACE = ROOT / "tests" / "traces" / "h200"
COLLECTIONS = {"cases": ROOT / "cases", "shared": ROOT.parent / "shared" / "cases"}
PROGRAMS = {"resnet_channels_last.py": "2", "gpt2_trainer.py": "2"}
"""Real programs, and how many steps of each."""

LIMIT = 3 << 20
"""Bytes of all traces together."""

SECONDS = 200.0
_MARKERS = ("race", "latent", "possible", "maybe")


def record(folder: Path, jobs: int, device: str = "cuda") -> list[str]:
    """Record all traces below `folder` on a ``--device``; returns what went wrong."""
    faults = []
    for name, place in COLLECTIONS.items():
        if place.is_dir():
            faults += _record_cases(place, folder / name, jobs, device)
    return faults + record_programs(folder, device)


def _record_cases(place: Path, folder: Path, jobs: int, device: str) -> list[str]:
    cases = [
        case for case in find_cases([place]) if case.devices == 1 and case.only in ("", "cuda")
    ]
    options = ("run", "--device", device, *kept_in(folder))
    tasks = [
        Task(case, streamsan, (*options, str(folder / f"{case.name}.streamsan"))) for case in cases
    ]
    faults = [
        f"{task.case.name}: {outcome.error.strip()[-200:]}"
        for task, outcome in run_all(tasks, jobs, SECONDS)
        if outcome.report is None
    ]
    finish(cases, place, folder)
    return faults


def kept_in(folder: Path) -> tuple[str, ...]:
    """The options before the path of a trace in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return ("--force", "--trace")


def finish(cases: Sequence[Case], place: Path, folder: Path) -> None:
    """Take the machine's folders out of recorded traces, and keep the labels that do not travel."""
    for trace in folder.glob("*.streamsan"):
        try:
            make_portable(trace, str(place))
        except TraceError as error:  # noqa: PERF203 -- one bad trace is no reason to lose the others
            print(f"{trace.name} is left out: {error}")
            trace.unlink()
    if place != COLLECTIONS["cases"]:
        text = json.dumps({case.name: labels(case) for case in cases}, indent=1)
        (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


def record_programs(folder: Path, device: str = "cuda") -> list[str]:
    """Record the real programs below `folder`; returns what went wrong."""
    folder = folder / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    faults = []
    for name, steps in PROGRAMS.items():
        trace = folder / f"{Path(name).stem}.streamsan"
        words = ["run", "--device", device, "--force", "--trace", str(trace)]
        words += [str(ROOT / "programs" / name), "--steps", steps, "--device", "cuda"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "streamsan", *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        if done.returncode:
            faults.append(f"{name}: exit status {done.returncode}: {done.stderr[-300:]}")
        else:
            make_portable(trace, str(ROOT / "programs"))
    return faults


def labels(case: Case) -> dict[str, object]:
    """What ``expected.json`` keeps of a program."""
    pairs = {key: sorted(getattr(case, key)) for key in _MARKERS}
    return {"kind": case.fields.get("kind", ""), **pairs}


def expected(trace: Path) -> Case:
    """What the program of a trace is labelled with; a real program has no race.

    Raises KeyError for one that has no label.
    """
    if trace.parent.name == "programs":
        return Case(trace.with_suffix(".py"), {}, frozenset(), frozenset(), frozenset())
    collection = COLLECTIONS[trace.parent.name]
    if collection.is_dir():
        return _by_name(collection)[trace.stem]
    kept = json.loads((trace.parent / "expected.json").read_text(encoding="utf-8"))[trace.stem]
    pairs = {key: frozenset((int(one), int(other)) for one, other in kept[key]) for key in _MARKERS}
    return Case(trace.with_suffix(".py"), {"kind": kept["kind"]}, **pairs)


@cache
def _by_name(collection: Path) -> dict[str, Case]:
    return {case.name: case for case in find_cases([collection])}


def faults(trace: Path) -> list[str]:
    """What is wrong with a trace: its verdict, its end, or where it comes from."""
    checker = Checker()
    for record in read(trace):
        checker.feed(record)
    report = checker.report()
    status = 66 if report.races else 0
    score = judge(expected(trace), Outcome(status, json.loads(msgspec.json.encode(report))))
    found = [] if score.passed else [f"missed {score.missed}, false {score.false}"]
    found += [] if report.summary.complete else ["cut short"]
    found += report.summary.internal_errors
    return found + ([] if report.summary.recorder == "cuda" else ["not from a real GPU"])


def traces(folder: Path) -> list[Path]:
    """All traces below a folder."""
    return sorted(folder.glob("*/*.streamsan"))


def place(folder: Path) -> list[str]:
    """Replace the traces of the tests by those below `folder`; returns what is wrong with them."""
    found = traces(folder)
    wrong = [f"{path.parent.name}/{path.stem}: {fault}" for path in found for fault in faults(path)]
    size = sum(path.stat().st_size for path in found)
    if not found or size > LIMIT:
        wrong.append(f"{len(found)} traces of {size:,} bytes, where {LIMIT:,} are the limit")
    if wrong:
        return wrong
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(folder, PLACE, ignore=_foreign)
    print(f"{len(found)} traces, {size:,} bytes, are in {PLACE.relative_to(ROOT)}")
    return []


def _foreign(_: str, names: list[str]) -> Iterator[str]:
    """Files that are no traces."""
    return (
        name for name in names if "." in name and not name.endswith((".streamsan", "expected.json"))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("verb", choices=("record", "programs", "place"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    if options.verb == "record":
        wrong = record(folder, options.jobs)
    else:
        wrong = record_programs(folder) if options.verb == "programs" else place(folder)
    for fault in wrong:
        print(fault)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
