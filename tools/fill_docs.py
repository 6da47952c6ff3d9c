"""Fills the documentation with real output: ``python tools/fill_docs.py`` writes it anew.

A block of output follows a marker such as ``<!-- output: racy -->``. They show what examples say on
the virtual GPU: `prefetch.py`, as it stands or with the repairs of the tutorial, and the programs
of the two reports that StreamSan grew from; backward passes are drawn as well.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = "examples/prefetch.py"
BACKWARD = "examples/backward_other_stream.py"
ARENA = "examples/vit_bfc.py"
_USE = "        total += (batch"
_WAIT = "        torch.cuda.current_stream().wait_stream(copy_stream)\n"
_RECORD = "        batch.record_stream(torch.cuda.current_stream())\n"


def run(
    source: str, *options: str, script: str = SCRIPT, words: tuple[str, ...] = ()
) -> tuple[str, str]:
    """Output and report of a version of a script, run with `words` from a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / script
        path.parent.mkdir()
        path.write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "streamsan", "run", "--device", "virtual"]
        done = subprocess.run(
            [*command, *options, script, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 66):
        raise SystemExit(f"{script} ended with {done.returncode}: {done.stderr}")
    return done.stdout, done.stderr


def blocks() -> Iterator[tuple[str, str, str]]:
    """Each block: the file, the marker, the output it should hold."""
    racy = (ROOT / SCRIPT).read_text(encoding="utf-8")
    waits = racy.replace(_USE, _WAIT + _USE)
    line = next(line for line in waits.splitlines(keepends=True) if line.startswith(_USE))
    clean = waits.replace(line, line + _RECORD)
    output, report = run(racy)
    yield "README.md", "report", report
    yield "docs/tutorial.md", "output: racy", output + report
    output, report = run(racy, "--schedule", "late")
    last = report[report.index("streamsan:") :].splitlines()[0]
    yield "docs/tutorial.md", "output: late", f"{output}…\n{last}"
    yield "docs/tutorial.md", "output: waits", "".join(run(waits))
    yield "docs/tutorial.md", "output: clean", "".join(run(clean))
    backward = (ROOT / BACKWARD).read_text(encoding="utf-8")
    faulty = ("--engine", "torch-1.6", "--schedule", "late")
    output, report = run(backward, *faulty, script=BACKWARD)
    yield "docs/engine.md", "output: faulty", output + report
    output, report = run(backward, *faulty, "--verbose", script=BACKWARD)
    yield "docs/engine.md", "output: account", report[report.index("backward pass at") :]
    arena = (ROOT / ARENA).read_text(encoding="utf-8")
    faulty = ("--allocator", "bfc:async", "--schedule", "hold:default")
    output, report = run(arena, *faulty, script=ARENA, words=("--small",))
    verdict, last = output.splitlines()[-1], report[report.index("streamsan:") :].splitlines()[0]
    first = report[: report.index("race 2 of")]
    yield "docs/arenas.md", "output: async", f"…\n{verdict}\n{first}…\n\n{last}"


def pictures() -> Iterator[tuple[str, str]]:
    """Each picture of a backward pass: the file, and what it should hold."""
    source = (ROOT / BACKWARD).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("torch-1.6", "torch-2.8"):
            path = Path(folder) / f"{policy}.svg"
            run(source, "--engine", policy, "--plan", str(path), script=BACKWARD)
            yield f"docs/backward_{policy}.svg", path.read_text(encoding="utf-8")


def filled(text: str, marker: str, output: str) -> str:
    """`text` with the block after the marker replaced. Raises ValueError without the marker."""
    place = re.compile(rf"(<!-- {re.escape(marker)} -->)(\n\n?```text\n.*?\n```)?", re.DOTALL)
    if not place.search(text):
        raise ValueError(f"there is no marker <!-- {marker} -->")
    block = f"\n\n```text\n{output.rstrip()}\n```"
    return place.sub(lambda found: found.group(1) + block, text, count=1)


def timeless(text: str) -> str:
    """`text` without the seconds that a run took, which are never the same."""
    return re.sub(r"\d+\.\d s\b", "… s", text)


def main() -> None:
    """Write all blocks and pictures."""
    for file, picture in pictures():
        (ROOT / file).write_text(picture, encoding="utf-8")
    for file, marker, output in blocks():
        path = ROOT / file
        path.write_text(filled(path.read_text(encoding="utf-8"), marker, output), encoding="utf-8")


if __name__ == "__main__":
    main()
