"""How often a CUDA graph draws the random numbers of another one, launched on another stream.

    python benchmarks/graph_random_race.py [--runs 100] [--output FILE]

All graphs of a generator share two small tensors for seed and offset, which each launch fills on
its own stream before the graph runs. Here two graphs are launched on two streams; the first is
held back by a kernel that waits. What it draws is compared with what it draws when the second
launch waits for the first. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from pathlib import Path

import torch

SIZE = 1 << 16
HELD = 20_000_000
"""Clock cycles that the first graph is held back by: about 10 ms on an H200."""


def drawing(held: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph that draws numbers, and where it puts them."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if held:
            torch.cuda._sleep(held)
        numbers = torch.rand(SIZE, device="cuda")
    return graph, numbers


class Bench:
    """Two graphs and two streams."""

    def __init__(self) -> None:
        self.graphs = [drawing(HELD), drawing(0)]
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def draw(self, seed: int, *, ordered: bool) -> list[torch.Tensor]:
        """What both graphs draw."""
        torch.manual_seed(seed)
        torch.cuda.synchronize()
        for (graph, _), stream in zip(self.graphs, self.streams, strict=True):
            if ordered:
                stream.wait_stream(self.streams[0])
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        return [numbers.clone() for _, numbers in self.graphs]


def table(runs: int) -> Iterator[str]:
    """The figures, as lines of Markdown."""
    bench = Bench()
    wrong = same = 0
    for seed in range(runs):
        right = bench.draw(seed, ordered=True)
        found = bench.draw(seed, ordered=False)
        wrong += not torch.equal(found[0], right[0])
        same += torch.equal(found[0], found[1])
    yield "| runs | the first graph's numbers were wrong | both graphs drew the same numbers |"
    yield "|---|---|---|"
    yield f"| {runs} | {wrong} | {same} |"


def main() -> None:
    """Count, and print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    where = f"{torch.cuda.get_device_name(0)}; torch {torch.__version__}"
    lines = [f"{where}, Python {platform.python_version()}.", "", *table(given.runs)]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if given.output is not None:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
