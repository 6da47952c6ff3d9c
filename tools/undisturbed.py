"""Holds StreamSan to leaving programs alone: the same output, exit status and figures without it.

    python tools/undisturbed.py --device cuda [--output FILE] [PROGRAM ...]
    python tools/undisturbed.py --device virtual

A PROGRAM is a script of ``tests/undisturbed/``, by default all of them. Each runs bare and under
``streamsan run``; both have to write the same to standard output and to standard error, and to end
with the same status, or by the same signal. With ``--device virtual`` the bare run is on the CPU.
Exit status 0 when nothing differs, else 1.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from tools.programs import machine, read_program  # noqa: E402

FOLDER = ROOT / "tests" / "undisturbed"
SECONDS = 200.0


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Row:
    """What became of one program; `faults` is empty where nothing differs."""

    program: str
    ended: str = ""
    faults: tuple[str, ...] = ()
    skipped: bool = False


def run(words: Sequence[str]) -> Ended:
    """Run a command, with standard output and error of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    return Ended(done.returncode, done.stdout, _without_addresses(done.stderr))


def compare(path: Path, device: str) -> Row:
    """Run a program bare and watched, and hold the one against the other."""
    virtual = device == "virtual"
    if virtual and read_program(path).cuda_only:
        return Row(path.name, skipped=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        bare = run([str(path), "cpu" if virtual else "cuda"])
        options = ["--device", device, "--format", "json", "--output", str(report)]
        watched = run(["-m", "streamsan", "run", *options, str(path), "cuda"])
        faults = [] if report.exists() or bare.status < 0 else ["no report"]
    if watched.status != bare.status:
        faults.append(f"ended with {watched.status}")
    for name in ("stdout", "stderr"):
        faults += [f"{name}: {line}" for line in _differing(bare, watched, name)]
    return Row(path.name, f"{bare.status}", tuple(faults))


def _differing(bare: Ended, watched: Ended, name: str) -> Iterable[str]:
    """Lines of an output that one run has and the other has not, marked as ``diff`` does."""
    lines = (getattr(ended, name).splitlines() for ended in (bare, watched))
    return [line for line in difflib.ndiff(*lines) if line[0] in "+-"]


def _without_addresses(text: str) -> str:
    """`text` without the addresses of objects, which are never the same."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", text)


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| program | ends with | result |", "|---|---|---|"]
    for row in rows:
        faults = f"{len(row.faults)} differences" if row.faults else ""
        result = "needs a real GPU" if row.skipped else faults or "the same"
        lines.append(f"| `{row.program}` | {row.ended} | {result} |")
    return "\n".join(lines)


def programs() -> list[Path]:
    """All programs."""
    return sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith(("_", "test_")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    chosen = options.programs or programs()
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda path: compare(path, options.device), chosen))
    print(table(rows))
    for row in rows:
        for fault in row.faults:
            print(f"{row.program}: {fault}")
    if options.output:
        words = arguments if arguments is not None else sys.argv[1:]
        command = " ".join(["python tools/undisturbed.py", *words])
        head = f"# Programs left alone\n\nMade with `{command}` on: {machine(options.device)}.\n\n"
        options.output.write_text(f"{head}{table(rows)}\n", encoding="utf-8")
    return int(any(row.faults for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("virtual", "cuda"), default="virtual")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time")
    parser.add_argument("--output", type=Path, help="write the table to this Markdown file")
    parser.add_argument("programs", nargs="*", type=Path, metavar="PROGRAM")
    return parser


if __name__ == "__main__":
    sys.exit(main())
