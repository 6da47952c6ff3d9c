"""What listening to NumPy costs its calls: of arrays over pinned memory, and of all others.

    python benchmarks/numpy_calls.py [--device virtual|cuda]

Times calls on small arrays bare, then while a recording is under way in which a device has copied
to pinned memory: on an array elsewhere, and on one over that memory, whose use is told. Prints
nanoseconds a call, the least of five runs each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

import streamsan

CALLS: dict[str, tuple[Callable[[np.ndarray], object], int]] = {
    "array[5]": (lambda array: array[5], 20_000),
    "array[1:3]": (lambda array: array[1:3], 20_000),
    "array + array": (lambda array: array + array, 10_000),
    "array.sum()": (lambda array: array.sum(), 10_000),
    "array[[1, 2]]": (lambda array: array[[1, 2]], 5_000),
}
"""Calls, and how often each is made in a run."""


def measure(array: np.ndarray) -> list[int]:
    """Nanoseconds of each call."""
    found = []
    for call, count in CALLS.values():
        runs = []
        for _ in range(5):
            start = time.perf_counter_ns()
            for _ in range(count):
                call(array)
            runs.append((time.perf_counter_ns() - start) // count)
        found.append(min(runs))
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("virtual", "cuda"), default="virtual")
    device = parser.parse_args().device
    elsewhere = np.ones(16, np.float32)
    columns = [measure(elsewhere)]
    with streamsan.watch(device=device):
        landing = torch.zeros(16, pin_memory=True)
        landing.copy_(torch.ones(16, device="cuda"), non_blocking=True)
        torch.cuda.synchronize()
        columns += [measure(elsewhere), measure(landing.numpy())]
    print(f"numpy {np.__version__}, ns a call: bare, watched elsewhere, watched over pinned memory")
    for name, figures in zip(CALLS, zip(*columns, strict=True), strict=True):
        print(f"{name:16}" + "".join(f"{figure:8,}" for figure in figures))


if __name__ == "__main__":
    main()
