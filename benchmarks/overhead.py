"""Measure what recording and checking cost on a CUDA device.

Each way of watching a program is a process of its own; all of them run the same training step, a
few at a time and in turns, so that they see the same machine. A host that others use as well is
slower at one time than at another, so each turn is compared with the bare program's beside it.

    python benchmarks/overhead.py --write benchmarks/results/overhead_h200.md
    python benchmarks/overhead.py --programs mlp --variants bare checked --turns 40
    python benchmarks/overhead.py --memory-steps 1000 --turns 0
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run by its path: the folder above is not on sys.path yet
    sys.path.insert(0, str(ROOT))

from benchmarks.overhead_variants import (  # noqa: E402
    PROGRAMS,
    VARIANTS,
    count_operators,
    memory_kib,
    microseconds_of_a_walk,
)

_WARM_UP = 8
_DEPTH = 40
SLOW = 8
"""Part of the steps of a turn that torch's own sanitizer takes, which needs as long for each as all
the others together.
"""
_SETTLE = 0.03
"""Seconds after a turn, for the checker beside the program to be done before the next one."""

Order = tuple[str, int]


def serve(program: str, variant: str, orders: Connection) -> None:
    """Carry out orders until "end": ``("run", steps)`` gives the seconds of a step."""
    if variant == "count":
        orders.send(count_operators(program))
        return
    with VARIANTS[variant][0]():
        import torch

        step = PROGRAMS[program][0]()
        for _ in range(_WARM_UP):
            step()
        torch.cuda.synchronize()
        orders.send(None)
        while True:
            order, steps = orders.recv()
            if order == "end":
                break
            if order == "memory":
                orders.send(memory_kib())
                continue
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
            orders.send((time.perf_counter() - begin) / steps)
    orders.send(None)


class Worker:
    """A process that serves."""

    def __init__(self, program: str, variant: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.name = f"{program}, {variant}"
        self.process: BaseProcess = context.Process(
            target=serve, args=(program, variant, theirs), daemon=True
        )
        self.process.start()
        theirs.close()  # so that a process that ends early is noticed here

    def answer(self) -> Any:
        """The next thing that the process says."""
        try:
            return self.line.recv()
        except (EOFError, OSError):
            raise SystemExit(f"{self.name}: the process ended early") from None

    def ask(self, order: str, steps: int = 0) -> Any:
        """Have an order carried out."""
        self.line.send((order, steps))
        return self.answer()


def race(
    program: str, workers: dict[str, Worker], turns: int, memory_steps: int
) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds of the steps of a variant's worker each, and what memory grew by, in words."""
    steps = PROGRAMS[program][2]
    for worker in workers.values():
        worker.answer()
    seconds: dict[str, list[float]] = {variant: [] for variant in workers}
    for _ in range(turns):
        for variant, worker in workers.items():
            share = SLOW if variant == "sanitizer" else 1
            seconds[variant].append(worker.ask("run", max(1, steps // share)))
            time.sleep(_SETTLE)
    grown = list(growth(workers["checked"], memory_steps)) if memory_steps else []
    for worker in workers.values():
        worker.ask("end")
        worker.process.join()
    return seconds, grown


def growth(worker: Worker, steps: int) -> Iterator[str]:
    """How long a step takes in the long run, and what memory grows by, of both processes."""
    before = worker.ask("memory")
    yield f"{1e3 * worker.ask('run', steps):.2f} ms a step"
    time.sleep(1)
    after = worker.ask("memory")
    for name in before:
        yield (
            f"{name}: {(after[name] - before[name]) / 1024:+.0f} MiB"
            f" ({after[name] / 1024:,.0f} MiB then)"
        )


def table(seconds: dict[str, list[float]]) -> Iterator[str]:
    """A line of Markdown for each variant: its steps, and their ratios to the first one's of the
    same turn, each as the median and the quartiles.
    """
    yield "| | a step | quartiles | ratio | quartiles |"
    yield "|---|---|---|---|---|"
    base = next(iter(seconds.values()))
    for variant, durations in seconds.items():
        low, median, high = (1e3 * value for value in statistics.quantiles(durations, n=4))
        ratios = [one / bare for one, bare in zip(durations, base)]
        least, ratio, most = statistics.quantiles(ratios, n=4)
        yield (
            f"| {VARIANTS[variant][1]} | {median:.2f} ms | {low:.2f}, {high:.2f}"
            f" | {ratio:.2f} | {least:.2f}, {most:.2f} |"
        )


def machine() -> str:
    """What the figures are from."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return (
        f"{properties.name}, {os.cpu_count()} cores, Python {platform.python_version()}, torch"
        f" {torch.__version__}"
    )


def document(args: argparse.Namespace) -> Iterator[str]:
    """The lines of the report."""
    yield "# Cost on a real GPU"
    yield ""
    yield f"{machine()}. Made with"
    yield ""
    yield (
        f"    python benchmarks/overhead.py --turns {args.turns} --memory-steps {args.memory_steps}"
        f" --variants {' '.join(args.variants)}"
    )
    yield ""
    yield (
        "Each way of watching is a process of its own; they take turns. The figures are medians"
        " over the turns, a ratio being to the first one's step in the same turn."
    )
    counters = {program: Worker(program, "count") for program in args.programs}
    contestants = {
        program: {variant: Worker(program, variant) for variant in args.variants}
        for program in args.programs
    }
    for nth, program in enumerate(args.programs):
        yield ""
        yield f"## {PROGRAMS[program][1]}: {counters[program].answer():,} operators"
        yield ""
        memory_steps = 0 if nth else args.memory_steps
        seconds, grown = race(program, contestants[program], args.turns, memory_steps)
        if args.turns:
            yield from table(seconds)
        if grown:
            yield ""
            yield f"{memory_steps:,} further steps without a pause: {'; '.join(grown)}."
    yield ""
    yield (
        f"To find the number of a Python stack of {_DEPTH} frames takes"
        f" {microseconds_of_a_walk(_DEPTH):.2f} us."
    )


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    p = argparse.ArgumentParser(description="Measure what recording costs on a CUDA device.")
    p.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    p.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    p.add_argument("--turns", type=int, default=12)
    p.add_argument(
        "--memory-steps",
        type=int,
        default=0,
        metavar="N",
        help="for its growth, by the first program",
    )
    p.add_argument("--write", type=Path, metavar="FILE", help="write the report there as well")
    return p


def main() -> None:
    """Run the command line."""
    options = parser()
    args = options.parse_args()
    if args.memory_steps and "checked" not in args.variants:
        options.error("--memory-steps is for the variant 'checked', which is left out")
    lines = []
    for line in document(args):
        print(line, flush=True)
        lines.append(line)
    if args.write:
        args.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
