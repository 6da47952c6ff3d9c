"""How often a backward pass gives a wrong gradient, for each engine policy: the first report.

    python benchmarks/backward_race.py [--device cuda|virtual] [--runs 100] [--output FILE]

Two programs, those of ``examples/``: in *other stream* the forward pass runs on a side stream and
``backward()`` is called under another one, where the gradient is read; in *default stream* both run
on a side stream, and the gradient is read on the default stream. The side stream is held back: on a
real GPU by a kernel that waits, on the virtual GPU by the schedule ``late``. The data differ from
run to run, so that what an earlier run left behind is no right gradient.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

import streamsan
from streamsan import autograd

SIZE = 1 << 20
HELD = 20_000_000
"""Clock cycles that the side stream is held back by: about 10 ms on an H200."""

Backward = Callable[[torch.Tensor], None]


class Bench:
    """The streams and tensors of all runs."""

    def __init__(self) -> None:
        self.side = torch.cuda.Stream()
        self.ambient = torch.cuda.Stream()
        self.weight: Any = torch.full((SIZE,), 3.0, device="cuda", requires_grad=True)
        self.data = torch.zeros(SIZE, device="cuda")

    def other_stream(self, backward: Backward) -> torch.Tensor:
        """The gradient as the caller's stream finds it."""
        with torch.cuda.stream(self.side):
            loss = (self.weight * self.data).sum()
            torch.cuda._sleep(HELD)
        with torch.cuda.stream(self.ambient):
            backward(loss)
            return self._read()

    def default_stream(self, backward: Backward) -> torch.Tensor:
        """The gradient as the default stream finds it."""
        with torch.cuda.stream(self.side):
            loss = (self.weight * self.data).sum()
            torch.cuda._sleep(HELD)
            backward(loss)
        return self._read()

    def _read(self) -> torch.Tensor:
        """The gradient, read on the current stream, which alone is waited for."""
        found: torch.Tensor = self.weight.grad.clone()
        torch.cuda.current_stream().synchronize()
        return found

    def wrong(self, program: Callable[[Backward], torch.Tensor], by: Backward, runs: int) -> int:
        """In how many of the runs the gradient that was found is not the right one."""
        count = 0
        for run in range(1, runs + 1):
            self.weight.grad = None
            self.data.fill_(run)
            torch.cuda.synchronize()
            found = program(by)
            torch.cuda.synchronize()
            count += not bool((found == run).all().item())
        return count


def engines() -> Iterator[tuple[str, Backward]]:
    """The engine of torch, then each policy of ours."""
    yield f"torch {torch.__version__} itself", torch.autograd.backward
    for policy in autograd.POLICIES:
        yield policy, _under(policy)


def _under(policy: str) -> Backward:
    return lambda loss: autograd.backward(loss, policy=policy)


def table(runs: int) -> Iterator[str]:
    """The figures, as lines of Markdown."""
    yield f"| engine | other stream: wrong of {runs} | default stream: wrong of {runs} |"
    yield "|---|---|---|"
    bench = Bench()
    for name, backward in engines():
        found = [bench.wrong(p, backward, runs) for p in (bench.other_stream, bench.default_stream)]
        yield f"| `{name}` | {found[0]} | {found[1]} |"


@contextmanager
def device(name: str) -> Iterator[str]:
    """The device to run on; the virtual GPU lasts as long as the block."""
    virtual = name == "virtual"
    with streamsan.watch(device="virtual", schedule="late") if virtual else nullcontext():
        where = "the virtual GPU, schedule late" if virtual else torch.cuda.get_device_name(0)
        versions = f"torch {torch.__version__}, Python {platform.python_version()}"
        yield f"{where}; {versions}, StreamSan {streamsan.__version__}"


def main() -> None:
    """Count, and print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "virtual"), default="cuda")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with device(given.device) as where:
        lines = [f"{where}.", "", *table(given.runs)]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if given.output is not None:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
