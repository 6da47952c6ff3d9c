"""Torch programs that strain the sanitizer; ``adversarial.py`` runs each under ``streamsan run``.

A program is a function that returns the step that it takes over and over; it has no race. Run as a
script with the name of one and a number of steps, it prints a line of JSON for each tenth of them:
microseconds of processor time a step, and the most bytes that the process has used.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MIB = 1 << 20
TENTHS = 10
Step = Callable[[int], object]


def memory() -> int:
    """The most memory that this process has used so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def streams() -> Step:
    """A thousand streams, each of which waits for the one before and adds to one buffer."""
    import torch

    # torch's own pool has 32 streams; others come from outside
    ring = [torch.cuda.ExternalStream(4096 + 16 * n) for n in range(1000)]
    buffer = torch.zeros(64, device="cuda")
    torch.cuda.synchronize()

    def step(n: int) -> None:
        stream = ring[n % 1000]
        stream.wait_stream(ring[(n - 1) % 1000])
        with torch.cuda.stream(stream):
            buffer.add_(1)

    return step


def blocks() -> Step:
    """A hundred thousand live tensors, one of which is made anew each time."""
    import torch

    live = [torch.zeros(8, device="cuda") for _ in range(100_000)]

    def step(n: int) -> None:
        live[n % len(live)] = torch.zeros(8, device="cuda")

    return step


def constant() -> Step:
    """A constant that eight streams read; nothing ever waits."""
    import torch

    value = torch.ones(64, device="cuda")
    side = [torch.cuda.Stream() for _ in range(8)]
    results = []
    for stream in side:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results.append(torch.zeros(64, device="cuda"))

    def step(n: int) -> None:
        with torch.cuda.stream(side[n % 8]):
            torch.add(value, 1, out=results[n % 8])

    return step


def views() -> Step:
    """Columns of single bytes of a large matrix, by two streams in turn; no two overlap."""
    import torch

    matrix = torch.zeros(100, 10_000, dtype=torch.uint8, device="cuda")
    side = [torch.cuda.Stream(), torch.cuda.Stream()]
    for stream in side:
        stream.wait_stream(torch.cuda.current_stream())

    def step(n: int) -> None:
        with torch.cuda.stream(side[n % 2]):
            matrix[:, n % 10_000].add_(1)

    return step


def events() -> Step:
    """One event, recorded on two streams in turn and waited for by a third."""
    import torch

    one, two, three = (torch.cuda.Stream() for _ in range(3))
    event = torch.cuda.Event()

    def step(n: int) -> None:
        event.record(one if n % 2 else two)
        three.wait_event(event)

    return step


def recursion() -> Step:
    """A recursion 900 deep that launches at each depth, over and over."""
    import torch

    sys.setrecursionlimit(5000)
    total = torch.zeros(8, device="cuda")

    def down(depth: int) -> None:
        total.add_(1)
        if depth > 1:
            down(depth - 1)

    return lambda _: down(900)


def sources() -> Step:
    """Modules that are no UTF-8, or gone by the time that they launch; a new one each time."""
    import torch

    folder = tempfile.TemporaryDirectory()
    sys.path.insert(0, folder.name)
    total = torch.zeros(8, device="cuda")
    text = b"# -*- coding: latin-1 -*-\nname = '\xe9\xff'\ndef launch(x):\n    x.add_(1)\n"

    def step(n: int) -> None:
        path = Path(folder.name) / f"gone_{n}.py"
        path.write_bytes(text)
        importlib.invalidate_caches()
        module = importlib.import_module(path.stem)
        if n % 2:
            path.unlink()
        module.launch(total)
        path.unlink(missing_ok=True)  # a full folder would slow the next import down
        del sys.modules[path.stem]

    return step


def tensors() -> Step:
    """An operator of 5,000 tensors."""
    import torch

    many: list[torch.Tensor] = [torch.zeros(4, device="cuda") for _ in range(5000)]

    return lambda _: torch._foreach_add_(many, 1.0)


PROGRAMS: dict[str, tuple[Callable[[], Step], int]] = {
    "streams": (streams, 100_000),
    "blocks": (blocks, 1_000_000),
    "constant": (constant, 1_000_000),
    "views": (views, 1_000_000),
    "events": (events, 1_000_000),
    "recursion": (recursion, 500),
    "sources": (sources, 5_000),
    "tensors": (tensors, 200),
}
"""Each program, and its steps at full size."""


def main(name: str, steps: int) -> None:
    """Run a program."""
    step = PROGRAMS[name][0]()
    for tenth in range(TENTHS):
        first, last = steps * tenth // TENTHS, steps * (tenth + 1) // TENTHS
        begin = time.process_time()
        for n in range(first, last):
            step(n)
        spent = time.process_time() - begin
        line = {"microseconds": 1e6 * spent / (last - first), "bytes": memory()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
