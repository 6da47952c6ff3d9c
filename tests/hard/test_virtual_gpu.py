"""Hard programs on the virtual GPU, each a script of its own: they end as they should.

What is measured of them is how much they leave behind, never how long they take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsan.model.records import EventDestroy, EventRecord, StackDef, ThreadDef, ThreadEnd
from streamsan.trace import read

pytest.importorskip("torch")

RECURSION = """
import sys, torch
sys.setrecursionlimit(5000)
x = torch.zeros(8, device="cuda")
def down(depth):
    x.add_(1)
    return down(depth - 1) if depth else x.sum().item()
print(down(1500))
"""

RACE = """
import torch
side = torch.cuda.Stream()
x = torch.zeros(1024, device="cuda")
with torch.cuda.stream(side):
    x.add_(1)
print(x.sum().item())
"""

VANISHING = "import os\nos.unlink(__file__)\n" + RACE

LATIN = b"# -*- coding: latin-1 -*-\nname = '\xe9\xff'\n" + RACE.encode()

MANY_TENSORS = """
import torch
xs = [torch.zeros(4, device="cuda") for _ in range(3000)]
torch._foreach_add_(xs, 1.0)
print(sum(x.sum().item() for x in torch.stack(xs)[:2]))
"""

THREADS = """
import threading, torch
x = torch.zeros(8, device="cuda")
for _ in range(100):
    thread = threading.Thread(target=lambda: x.add_(1))
    thread.start()
    thread.join()
print(x.sum().item())
"""

EVENTS = """
import torch
side = torch.cuda.Stream()
x = torch.zeros(8, device="cuda")
for _ in range(100):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)
    torch.cuda.current_stream().wait_stream(side)
print(x.sum().item())
"""


def run(folder: Path, program: str | bytes) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run a program on the virtual GPU in `folder`: how it ended, and its report."""
    script = folder / "script.py"
    script.write_bytes(program.encode() if isinstance(program, str) else program)
    words = [sys.executable, "-m", "streamsan", "run", "--device", "virtual", "--format", "json"]
    words += ["-o", "report.json", "--trace", "trace", "script.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    return done, json.loads((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("program", "prints", "races"),
    [
        (RECURSION, "12008.0", 0),
        (MANY_TENSORS, "8.0", 0),
        (THREADS, "800.0", 0),
        (EVENTS, "800.0", 0),
        (RACE, "1024.0", 2),
        (VANISHING, "1024.0", 2),
        (LATIN, "1024.0", 2),
    ],
    ids=["recursion", "many tensors", "threads", "events", "race", "vanishing", "latin"],
)
def test_a_hard_program(tmp_path: Path, program: str | bytes, prints: str, races: int) -> None:
    done, report = run(tmp_path, program)
    assert done.stdout.split() == [prints]
    assert done.returncode == (66 if races else 0)
    assert len(report["races"]) == races
    assert report["summary"]["internal_errors"] == []
    assert report["summary"]["complete"]


def test_a_deep_recursion_leaves_stacks_of_bounded_size(tmp_path: Path) -> None:
    _, report = run(tmp_path, RECURSION)
    stacks = [record for record in read(tmp_path / "trace") if isinstance(record, StackDef)]
    assert len(stacks) < 600
    assert max(len(stack.sites) for stack in stacks) <= 100
    assert "callers beyond the innermost 100 frames" in report["summary"]["blind_spots"]


def test_threads_and_events_say_that_they_are_gone(tmp_path: Path) -> None:
    run(tmp_path, THREADS)
    records = list(read(tmp_path / "trace"))
    started = [record for record in records if isinstance(record, ThreadDef)]
    ended = [record for record in records if isinstance(record, ThreadEnd)]
    assert [record.timeline for record in ended] == [r.timeline for r in started[1:]]
    for file in ("trace", "report.json"):
        (tmp_path / file).unlink()
    run(tmp_path, EVENTS)
    records = list(read(tmp_path / "trace"))
    recorded = [record for record in records if isinstance(record, EventRecord)]
    destroyed = {record.event for record in records if isinstance(record, EventDestroy)}
    assert len(recorded) == 200
    assert {record.event for record in recorded} == destroyed
