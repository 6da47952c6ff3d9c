"""Train a ViT-B/16 on a CUDA device under each allocator: losses, verdict, speed, memory.

Each allocator gets two processes of its own. The first trains with it and nothing else, with the
parts of ``examples/vit_bfc.py``, and measures; the second runs that example under ``streamsan
run``. Losses count as right where they are those of torch's own allocator, to `TOLERANCE`. With
``--cost``, single blocks are timed instead.

    python benchmarks/arenas.py --output benchmarks/results/arenas_h200.md
    python benchmarks/arenas.py --cost --output benchmarks/results/arenas_cost_h200.md
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "vit_bfc.py"

TORCH = "torch's own"
NAMES = (
    TORCH, "bfc:async", "bfc:host-sync", "bfc:frontier", "bfc:event",
    "stream-ordered", "quarantine",
)  # fmt: skip

TOLERANCE = 0.01
"""Relative difference of two losses up to which they are the same; sums of floats vary."""

WARM_UP = 3


def measure(name: str, steps: int, batch: int) -> dict[str, Any]:
    """Train for `steps` steps after the warm-up, in this process; time in s, memory in bytes."""
    if name != TORCH:
        from streamsan.record import use_allocator

        use_allocator(name)
    import torch

    sys.path.insert(0, str(EXAMPLE.parent))
    example = importlib.import_module(EXAMPLE.stem)

    torch.manual_seed(0)
    device = torch.device("cuda")
    shape = example.VIT_B_16
    shape = type(shape)(**{**vars(shape), "batch": batch})
    model = example.make_model(shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses, ends = [], []
    found = islice(example.synthetic(shape, 8, pin=True), WARM_UP + steps)
    for step_batch in example.Uploads(found, device, 2):
        loss = example.loss_of(model, *step_batch, shape.classes)
        losses.append(loss.item())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - ends[WARM_UP - 1]
    return {
        "losses": losses,
        "seconds": seconds / steps,
        "reserved": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.max_memory_allocated(),
        **machine(torch),
    }


def cost(name: str) -> dict[str, Any]:
    """Median times in s of ``torch.empty(1000)`` and of the free of what it made.

    The allocator holds 400 blocks of many sizes already, and as many gaps between them.
    """
    if name != TORCH:
        from streamsan.record import use_allocator

        use_allocator(name)
    import torch

    sizes = (100, 1000, 16_000, 250_000, 2_000_000)
    held = [torch.empty(sizes[n * n % 5] + n, device="cuda") for n in range(800)]
    held = held[::2]
    came, went = [], []
    for _ in range(80):
        start = time.perf_counter()
        blocks = [torch.empty(1000, device="cuda") for _ in range(100)]
        middle = time.perf_counter()
        blocks.clear()
        came.append((middle - start) / 100)
        went.append((time.perf_counter() - middle) / 100)
    return {
        "allocate": statistics.median(came[20:]),
        "free": statistics.median(went[20:]),
        "held": len(held),
        **machine(torch),
    }


def machine(torch: Any) -> dict[str, str]:
    """The device and the version of torch."""
    return {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}


def run_worker(*arguments: str) -> dict[str, Any]:
    """`measure` or `cost` in a process of its own; with `error` alone where that failed."""
    command = [sys.executable, str(Path(__file__)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_checked(name: str, steps: int, batch: int) -> dict[str, Any]:
    """The example under ``streamsan run``: its losses, its time a step and the findings."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, "-m", "streamsan", "run", "--device", "cuda"]
        command += ["--allocator", "caching" if name == TORCH else name]
        command += ["--format", "json", "--output", str(out), str(EXAMPLE)]
        command += ["--steps", str(steps), "--batch", str(batch)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not out.exists():
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        report = json.loads(out.read_text(encoding="utf-8"))
    losses = [float(text) for text in re.findall(r"loss (\S+)$", done.stdout, re.MULTILINE)]
    pairs = {
        (race["kind"], *(_line(race[side]["site"]) for side in ("first", "second")))
        for race in report["races"]
    }
    return {
        "losses": losses,
        "status": done.returncode,
        "races": sorted(pairs),
        "errors": report["summary"]["internal_errors"],
    }


def _line(site: dict[str, Any] | None) -> int:
    return site["line"] if site else 0


def verdict_on(losses: Sequence[float], right: Sequence[float]) -> str:
    """What the losses of a run are: right, not finite from a step on, or wrong from one on."""
    for step, (loss, wanted) in enumerate(zip(losses, right, strict=False)):
        if not math.isfinite(loss):
            return f"{loss} at step {step}"
        if abs(loss - wanted) > TOLERANCE * abs(wanted):
            return f"wrong from step {step} ({loss:.4g}, not {wanted:.4g})"
    return "right"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [" | ".join(cells) for cells in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def shown(name: str) -> str:
    """How a table names an allocator."""
    return name if name == TORCH else f"`{name}`"


def row(name: str, alone: dict[str, Any], seen: dict[str, Any], right: list[float]) -> list[str]:
    """A line of the table of trainings."""
    cells = [shown(name)]
    cells += [run.get("error") or verdict_on(run["losses"], right) for run in (alone, seen)]
    cells += [str(seen.get("status", "")), str(len(seen.get("races", [])))]
    if "error" not in alone:
        cells.append(f"{1 / alone['seconds']:.2f}")
        cells += [f"{alone[key] / (1 << 30):.2f} GiB" for key in ("allocated", "reserved")]
    return cells


def findings(checked: dict[str, dict[str, Any]]) -> str:
    """The races found, by line of the example."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    rows = []
    for name, seen in checked.items():
        for kind, first, second in seen.get("races", []):
            sides = [f"`{lines[n - 1].strip()}` ({n})" if n else "?" for n in (first, second)]
            rows.append(f"- `{name}`: {kind}: {' against '.join(sides)}")
        rows += [f"- `{name}`: internal error: {text}" for text in seen.get("errors", [])]
    return "\n".join(rows)


def trainings(names: Sequence[str], steps: int, checked_steps: int, batch: int) -> str:
    """Train with each allocator, alone and under ``streamsan run``."""
    alone, seen = {}, {}
    for name in names:
        size = "--steps", str(steps), "--batch", str(batch)
        alone[name] = run_worker("--measure", name, *size)
        print(name, json.dumps(alone[name]), flush=True)
        seen[name] = run_checked(name, checked_steps, batch)
        print(name, json.dumps(seen[name]), flush=True)
    own = alone[TORCH]
    heads = (
        "allocator", "losses", "losses under `streamsan run`", "exit", "races", "steps/s",
        "peak in blocks", "peak reserved",
    )  # fmt: skip
    rows = [row(name, alone[name], seen[name], own["losses"]) for name in names]
    head = (
        f"{own['device']}, torch {own['torch']}, Python {platform.python_version()}; batch {batch},"
        f" float32; {steps} steps timed after {WARM_UP}, {checked_steps} steps under"
        " `streamsan run`.\nCommand: `python benchmarks/arenas.py`."
    )
    title = "# ViT-B/16 under each allocator"
    found = findings(seen) or "None."
    what = "Races, by line of `examples/vit_bfc.py`:"
    return "\n\n".join((title, head, table(heads, rows), what, found))


def costs(names: Sequence[str]) -> str:
    """Time a block of each allocator."""
    found = {name: run_worker("--measure-cost", name) for name in names}
    rows = []
    for name, times in found.items():
        cells = [f"{times[key] * 1e6:.1f} us" for key in ("allocate", "free") if key in times]
        rows.append([shown(name), *(cells or [times["error"]])])
    own = found[TORCH]
    head = (
        f"{own['device']}, torch {own['torch']}, Python {platform.python_version()};"
        " `torch.empty(1000)` among 400 blocks and as many gaps, medians.\n"
        "Command: `python benchmarks/arenas.py --cost`."
    )
    title = "# What a block costs"
    return "\n\n".join((title, head, table(("allocator", "allocate", "free"), rows)))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=12, help="steps to time")
    parser.add_argument("--checked-steps", type=int, default=5, help="steps under streamsan run")
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument("--allocators", default=",".join(NAMES), help="names, with commas between")
    parser.add_argument("--cost", action="store_true", help="time single blocks instead")
    parser.add_argument("--output", type=Path, help="write the results to this file as well")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--measure-cost", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.steps, options.batch)))
        return
    if options.measure_cost:
        print(json.dumps(cost(options.measure_cost)))
        return
    names = [TORCH, *(n for n in options.allocators.split(",") if n != TORCH)]
    if options.cost:
        text = costs([*names, "caching"])
    else:
        text = trainings(names, options.steps, options.checked_steps, options.batch)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
