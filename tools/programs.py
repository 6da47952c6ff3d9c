"""Runs real programs bare and under StreamSan: no race, the same figures, the same exit status.

    python tools/programs.py --device cuda [--output FILE] [PROGRAM ...]
    python tools/programs.py --device virtual --schedule program --schedule late

A PROGRAM is a script of ``programs/``; without one all of them are run. Each runs bare and under
``streamsan run``; where their figures differ, once more bare, to see whether those differ as well.
With ``--device virtual`` the bare run is on the CPU, sizes are small, and the watched run is made
once for each ``--schedule``.
Programs whose libraries are missing are skipped, and said to be. The table goes to standard
output, with ``--output`` to a Markdown file as well. Exit status 0 when every program that was run
passed, else 1.

A program's docstring may have the fields ``needs: MODULE, ...``, what it imports, and
``device: cuda``, where only a real GPU will do.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "programs"
_FIELD = re.compile(r"^(needs|device): (.+)$", re.MULTILINE)
_SHARED = ("common", "transformer")
_LIBRARIES = (
    "torchvision", "timm", "transformers", "accelerate", "peft", "lightning", "torch-geometric",
    "gpytorch", "botorch", "torchdiffeq", "torchaudio", "e3nn", "jax", "cupy-cuda13x",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A script, the modules that it imports, and whether only a real GPU will do."""

    path: Path
    needs: tuple[str, ...] = ()
    cuda_only: bool = False

    @property
    def missing(self) -> list[str]:
        """Those of its modules that cannot be found here."""
        return [name for name in self.needs if not _found(name)]


@dataclass(frozen=True)
class Done:
    """One run: its exit status, the results that it printed (lines that begin with ``=``), what it
    wrote to stderr, how long it took, and the report if it has one.
    """

    status: int
    lines: tuple[str, ...]
    errors: str
    seconds: float
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """How one program did under one way of watching it; `faults` is empty where it passed."""

    program: str
    how: str
    figures: str = ""
    findings: str = ""
    seconds: str = ""
    faults: tuple[str, ...] = ()
    skipped: str = ""


def read_program(path: Path) -> Program:
    """The fields in the docstring of a script."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    fields = dict(_FIELD.findall(text))
    needs = tuple(name.strip() for name in fields.get("needs", "").split(",") if name.strip())
    return Program(path, needs, fields.get("device") == "cuda")


def find_programs(paths: Sequence[Path]) -> list[Program]:
    """The programs at `paths`, or all of them."""
    chosen = paths or [p for p in sorted(FOLDER.glob("*.py")) if p.stem not in _SHARED]
    return [read_program(path) for path in chosen]


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is missing
        return False


def run(words: Sequence[str], timeout: float, report: Path | None = None) -> Done:
    """Run a command; a run that takes longer than `timeout` seconds is ended, with status 124."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    start = perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = 124
        seconds = perf_counter() - start
        out.seek(0)
        err.seek(0)
        lines = tuple(line for line in out.read().splitlines() if line.startswith("= "))
        errors = err.read()
    found = {}
    if report is not None and report.exists() and report.stat().st_size:
        found = json.loads(report.read_text(encoding="utf-8"))
    return Done(status, lines, errors, seconds, found)


def judge(program: Program, how: str, bare: Done, watched: Done, again: Done) -> Row:
    """Compare a watched run with a bare one, and this with itself `again`."""
    faults = []
    if bare.status or not bare.lines:
        faults.append(f"bare run: exit status {bare.status}: {_last_line(bare.errors)}")
    differing = sum(a != b for a, b in zip(bare.lines, watched.lines, strict=False))
    differing += abs(len(bare.lines) - len(watched.lines))
    repeats = bare.lines == again.lines
    if watched.status != bare.status:
        faults.append(f"exit status {watched.status}: {_last_line(watched.errors)}")
    elif differing and repeats:
        faults.append(f"{differing} of {len(bare.lines)} lines differ")
    for kind in ("races", "latent", "misuse"):
        faults += [_named(kind, finding) for finding in watched.report.get(kind, [])]
    summary = watched.report.get("summary", {})
    faults += [f"internal error: {text}" for text in summary.get("internal_errors", [])]
    if not watched.report:
        faults.append("no report")
    figures = f"{differing} differ" if differing else f"{len(bare.lines)} equal"
    if differing and not repeats:
        figures += " (and from one bare run to the next)"
    spots = len(summary.get("blind_spots", []))
    findings = ", ".join(
        [
            *(f"{len(watched.report.get(k, []))} {k}" for k in ("races", "latent", "misuse")),
            f"{spots} blind spots",
        ]
    )
    seconds = f"{bare.seconds:.0f} / {watched.seconds:.0f}"
    return Row(program.path.name, how, figures, findings, seconds, tuple(faults))


def _named(kind: str, finding: dict[str, Any]) -> str:
    sides = []
    for side in ("first", "second"):
        found = finding.get(side) or {}
        site = found.get("site") or {}
        name = Path(site.get("file") or "?").name
        sides.append(f"{found.get('op')} at {name}:{site.get('line')}")
    return f"{kind}: {finding.get('kind')} {' and '.join(sides)}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing on stderr"


def run_program(program: Program, options: argparse.Namespace, folder: Path) -> list[Row]:
    """All rows of one program."""
    name = program.path.name
    virtual = options.device == "virtual"
    if program.missing:
        return [Row(name, "", skipped=f"not installed: {', '.join(program.missing)}")]
    if program.cuda_only and virtual:
        return [Row(name, "", skipped="needs a real GPU")]
    sizes = ["--small"] if virtual or options.small else []
    sizes += ["--steps", str(options.steps)] if options.steps else []
    sizes += ["--deterministic"] if options.deterministic else []
    script = [str(program.path), *sizes, "--device"]
    bare_command = [sys.executable, *script, "cpu" if virtual else "cuda"]
    bare = again = run(bare_command, options.timeout)
    rows = []
    for how in options.schedule or ["program"] if virtual else ["cuda"]:
        report = folder / f"{program.path.stem}.{how.replace(':', '')}.json"
        words = [sys.executable, "-m", "streamsan", "run", "--device", options.device]
        words += ["--schedule", how] if virtual else []
        words += ["--force", "--format", "json", "--output", str(report), *script, "cuda"]
        done = run(words, options.timeout, report)
        if options.keep:
            (options.keep / f"{report.stem}.stderr").write_text(done.errors, encoding="utf-8")
            (options.keep / f"{report.stem}.stdout").write_text("\n".join(done.lines))
        if done.lines != bare.lines and again is bare:
            again = run(bare_command, options.timeout)
        rows.append(judge(program, how, bare, done, again))
    return rows


def machine(device: str) -> str:
    """The device and the versions that a table was made with."""
    import torch

    real = device == "cuda" and torch.cuda.is_available()
    where = torch.cuda.get_device_name() if real else f"virtual GPU on {platform.machine()}"
    versions = [f"{n} {v}" for n in _LIBRARIES if (v := _version(n))]
    return f"{where}, Python {platform.python_version()}, " + ", ".join(
        [f"torch {torch.__version__}", *versions]
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| program | run | figures | found | seconds, bare / watched | result |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        result = f"skipped: {row.skipped}" if row.skipped else "; ".join(row.faults) or "passed"
        cells = (row.program, row.how, row.figures, row.findings, row.seconds, result)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def total(rows: Sequence[Row]) -> str:
    """One line on all rows."""
    ran = [row for row in rows if not row.skipped]
    passed = sum(not row.faults for row in ran)
    programs = len({row.program for row in ran})
    skipped = len(rows) - len(ran)
    return f"{passed} of {len(ran)} runs of {programs} programs passed; {skipped} skipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    programs = find_programs(options.programs)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        folder = options.keep or Path(scratch)
        found = pool.map(lambda program: run_program(program, options, folder), programs)
        rows = []
        for group in found:
            rows += group
            print(*table(group).splitlines()[2:], sep="\n", flush=True)
    text = f"{machine(options.device)}.\n\n{table(rows)}\n\n{total(rows)}."
    print(text)
    if options.output:
        command = " ".join(["python tools/programs.py", *(arguments or sys.argv[1:])])
        head = f"# Real programs, bare and watched\n\nMade with `{command}` on: "
        options.output.write_text(f"{head}{text}\n", encoding="utf-8")
    return int(any(row.faults for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("virtual", "cuda"), default="virtual")
    parser.add_argument("--schedule", action="append", help="of the virtual GPU; may be repeated")
    parser.add_argument("--small", action="store_true", help="small sizes on a real GPU too")
    parser.add_argument(
        "--deterministic", action="store_true", help="ask torch for the same figures in every run"
    )
    parser.add_argument("--steps", type=int, help="training steps, by default those of the program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time")
    parser.add_argument("--timeout", type=float, default=200.0, help="seconds for one run")
    parser.add_argument("--keep", type=Path, help="a folder for reports and what was printed")
    parser.add_argument("--output", type=Path, help="write the table to this Markdown file")
    parser.add_argument("programs", nargs="*", type=Path, metavar="PROGRAM")
    return parser


if __name__ == "__main__":
    sys.exit(main())
