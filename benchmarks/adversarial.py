"""Run programs that strain the checker, at full size, and tell whether their cost stays flat.

Two kinds, each program in a process of its own:

- records, as ``tests/hard/endless.py`` makes them, fed to the checker alone: `records:NAME`;
- torch programs on the virtual GPU, run and checked whole, of ``adversarial_programs.py`` beside
  this file: `torch:NAME` (needs torch).

Told for each: microseconds of processor time an operation, in each tenth of the run, the memory by
which the process grew in the tenths after the first, and what history the report says was given up.

    python benchmarks/adversarial.py
    python benchmarks/adversarial.py --scale 0.01 records:constant torch:views
    python benchmarks/adversarial.py --markdown
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from benchmarks.adversarial_programs import MIB, PROGRAMS, TENTHS, memory  # noqa: E402
from streamsan.detect import Checker  # noqa: E402
from streamsan.model.records import Operation  # noqa: E402
from tests.hard import endless  # noqa: E402

RECORDS: dict[str, tuple[Callable[[], endless.Run], int]] = {
    "streams": (partial(endless.ring_of_streams, 1000), 300_000),
    "blocks": (partial(endless.live_blocks, 100_000), 1_000_000),
    "constant": (endless.constant, 1_000_000),
    "views": (endless.strided_views, 1_000_000),
    "bytes": (endless.single_bytes, 1_000_000),
    "events": (endless.one_event, 1_000_000),
    "new-events": (endless.new_events, 1_000_000),
    "kept-events": (endless.kept_events, 1_000_000),
    "threads": (endless.threads_that_come_and_go, 300_000),
    "stacks": (endless.many_stacks, 1_000_000),
    "tensors": (endless.many_tensors, 500),
}
"""Each program of records, and its operations at full size."""


def check(name: str, operations: int) -> Iterator[dict[str, object]]:
    """Feed a program of records to a checker: a line for each tenth, and one at the end."""
    program = RECORDS[name][0]()
    checker = Checker()
    for record in _batch(program, 1):  # with all that it sets up
        checker.feed(record)
    wanted = operations // TENTHS
    for _ in range(TENTHS):
        spent, done = 0.0, 0
        while done < wanted:
            batch = list(_batch(program, min(1000, wanted - done)))
            done += min(1000, wanted - done)
            gc.collect(0)
            begin = time.process_time()
            for record in batch:
                checker.feed(record)
            spent += time.process_time() - begin
        yield {"microseconds": 1e6 * spent / wanted, "bytes": memory()}
    report = checker.report()
    yield {"verdict": report.verdict, "blind_spots": report.summary.blind_spots}


def _batch(program: endless.Run, operations: int) -> endless.Run:
    """The records up to so many operations more."""
    for record in program:
        yield record
        operations -= isinstance(record, Operation)
        if not operations:
            return


def run_records(name: str, operations: int) -> list[dict[str, object]]:
    """What `check` tells, of a process of its own."""
    words = [sys.executable, __file__, "--alone", name, str(operations)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_torch(name: str, operations: int) -> list[dict[str, object]]:
    """The same of a torch program under ``streamsan run``."""
    script = str(Path(__file__).with_name("adversarial_programs.py"))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [sys.executable, "-m", "streamsan", "run", "--device", "virtual"]
        words += ["--format", "json", "--output", str(report), script, name, str(operations)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        found = json.loads(report.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        *lines,
        {"verdict": found["verdict"], "blind_spots": found["summary"]["blind_spots"]},
    ]


def table(name: str, operations: int, lines: list[dict[str, object]]) -> Iterator[str]:
    """What a program cost, and what its report says."""
    *tenths, end = lines
    costs = [float(str(line["microseconds"])) for line in tenths]
    sizes = [int(str(line["bytes"])) for line in tenths]
    yield f"{name}: {operations:,} operations, {end['verdict']}"
    yield "  microseconds an operation, by tenth: " + " ".join(map(_short, costs))
    yield f"  {sizes[-1] / MIB:,.0f} MiB, {(sizes[-1] - sizes[0]) / MIB:,.0f} since the first tenth"
    blind = end["blind_spots"]
    assert isinstance(blind, list)
    yield from (f"  {text}" for text in blind if "forgotten" in text or "at once" in text)


def row(name: str, operations: int, lines: list[dict[str, object]]) -> str:
    """The same as a row of a table in Markdown, without what the report says."""
    costs = [float(str(line["microseconds"])) for line in lines[:-1]]
    sizes = [int(str(line["bytes"])) for line in lines[:-1]]
    later = costs[1:] or costs
    return (
        f"| `{name}` | {_what(name)} | {operations:,} | {_short(costs[0])}, {_short(later[0])},"
        f" {_short(costs[-1])} | {_short(min(later))} to {_short(max(later))}"
        f" | {sizes[-1] / MIB:,.0f} | {(sizes[-1] - sizes[0]) / MIB:,.0f} |"
    )


def _what(name: str) -> str:
    """What a program does, in the words of its docstring's first sentence."""
    kind, short = name.split(":")
    program = RECORDS[short][0] if kind == "records" else PROGRAMS[short][0]
    function = program.func if isinstance(program, partial) else program
    return str(function.__doc__).partition(".")[0].replace("\n", " ")


def _short(microseconds: float) -> str:
    return f"{microseconds:,.1f}" if microseconds < 100 else f"{microseconds:,.0f}"


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    p = argparse.ArgumentParser(description="Run programs that strain the checker at full size.")
    p.add_argument("programs", nargs="*", metavar="PROGRAM", help="records:NAME or torch:NAME")
    p.add_argument("--scale", type=float, default=1.0, help="the part of the full size to run")
    p.add_argument("--markdown", action="store_true", help="rows of a table instead")
    p.add_argument("--alone", nargs=2, metavar=("NAME", "OPERATIONS"), help=argparse.SUPPRESS)
    return p


def main() -> None:
    """Run the command line."""
    args = parser().parse_args()
    if args.alone:
        for line in check(args.alone[0], int(args.alone[1])):
            print(json.dumps(line), flush=True)
        return
    known = {f"records:{name}": size for name, (_, size) in RECORDS.items()}
    known |= {f"torch:{name}": size for name, (_, size) in PROGRAMS.items()}
    for name in args.programs or known:
        if name not in known:
            raise SystemExit(f"there is no program {name}: choose from {', '.join(known)}")
        operations = max(TENTHS, int(known[name] * args.scale))
        kind, short = name.split(":")
        lines = (run_records if kind == "records" else run_torch)(short, operations)
        told = [row(name, operations, lines)] if args.markdown else table(name, operations, lines)
        for text in told:
            print(text, flush=True)


if __name__ == "__main__":
    main()
