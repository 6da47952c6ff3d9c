"""Measure what the virtual GPU costs: a training step on it against the same step on the CPU.

Three processes train the vision transformer of ``examples/vit_train.py``: on plain CPU tensors, on
the virtual GPU with the records thrown away, and on the virtual GPU with the checker. They take
turns, one step each and with one thread each, so that all three see the same machine; the ratio is
that of the medians. A step includes its batch and reading the loss back.

    python benchmarks/virtual_gpu.py
    python benchmarks/virtual_gpu.py --steps 40 -- --depth 8 --width 192
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import torch

import streamsan
from streamsan.record import Options, open_recorder

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "vit_train.py"

CONTESTANTS = {
    "cpu": "plain CPU tensors",
    "virtual": "virtual GPU",
    "checked": "virtual GPU, checked",
}
"""Names of the processes, and how the table calls them. The first is what others are held to."""


@contextmanager
def recorded() -> Iterator[None]:
    """The virtual GPU alone: records are made, and dropped."""
    recorder = open_recorder(Options(device="virtual"), lambda _record: None)
    try:
        yield
    finally:
        recorder.stop()


def surroundings(contestant: str) -> AbstractContextManager[object]:
    """What a contestant trains within."""
    if contestant == "virtual":
        return recorded()
    if contestant == "checked":
        return streamsan.watch(device="virtual")
    return nullcontext()


def load_example() -> ModuleType:
    """The training script as a module."""
    sys.path.insert(0, str(EXAMPLE.parent))
    return importlib.import_module(EXAMPLE.stem)


def work(contestant: str, arguments: list[str], orders: Connection) -> None:
    """Train one step for each True received, and answer with its seconds; end at False."""
    with surroundings(contestant):
        example = load_example()
        torch.set_num_threads(1)  # idle threads that spin would take the others' turns
        device = "cpu" if contestant == "cpu" else "cuda"
        training = example.build(example.parser().parse_args([*arguments, "--device", device]))
        batches = iter(training.batches)
        while orders.recv():
            begin = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                batches = iter(training.batches)
                batch = next(batches)
            example.train_step(training, *batch).item()
            orders.send(time.perf_counter() - begin)


def ask(contestant: str, line: Connection) -> float:
    """Have a contestant train one step; returns its seconds."""
    try:
        line.send(True)
        return float(line.recv())
    except (EOFError, OSError):
        raise SystemExit(f"{CONTESTANTS[contestant]}: the process ended early") from None


def race(steps: int, warm_up: int, arguments: list[str]) -> dict[str, list[float]]:
    """Seconds of each contestant's steps, warm-up left out."""
    context = multiprocessing.get_context("spawn")
    lines: dict[str, Connection] = {}
    processes = []
    for contestant in CONTESTANTS:
        lines[contestant], theirs = context.Pipe()
        process = context.Process(target=work, args=(contestant, arguments, theirs), daemon=True)
        process.start()
        theirs.close()  # so that a process that ends early is noticed here
        processes.append(process)
    seconds: dict[str, list[float]] = {contestant: [] for contestant in CONTESTANTS}
    for turn in range(warm_up + steps):
        for contestant, line in lines.items():
            duration = ask(contestant, line)
            if turn >= warm_up:
                seconds[contestant].append(duration)
    for line in lines.values():
        line.send(False)
    for process in processes:
        process.join()
    return seconds


def table(seconds: dict[str, list[float]]) -> Iterator[str]:
    """One line a contestant: median, quartiles, and the ratio to the first's median."""
    base = statistics.median(next(iter(seconds.values())))
    for contestant, durations in seconds.items():
        low, median, high = statistics.quantiles(durations, n=4)
        yield (
            f"{CONTESTANTS[contestant]:<22} {1e3 * median:8.1f} ms a step "
            f"({1e3 * low:.1f} to {1e3 * high:.1f})  {median / base:5.2f}x"
        )


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    p = argparse.ArgumentParser(description="Measure what the virtual GPU costs.")
    p.add_argument("--steps", type=int, default=20, help="measured steps of each process")
    p.add_argument("--warm-up", type=int, default=3, help="steps before them")
    p.add_argument("arguments", nargs="*", help="options of the training script, after --")
    return p


def main() -> None:
    """Run the command line."""
    args = parser().parse_args()
    seconds = race(args.steps, args.warm_up, args.arguments)
    print(f"{EXAMPLE.name}, {args.steps} steps each, taking turns; medians and quartiles")
    for line in table(seconds):
        print(line)


if __name__ == "__main__":
    main()
