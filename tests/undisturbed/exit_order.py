"""What runs at the end, and in which order: threads, exit handlers, finalizers, destructors."""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from typing import Any

import torch

device = sys.argv[1]
kept = torch.ones(16, device=device)


class Holder:
    """Computes when it is destroyed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensor = torch.ones(4, device=device)

    def __del__(self) -> None:
        print("destroyed", self.name, flush=True)


def last(name: str) -> None:
    print("handler", name, (kept + 1).sum().item(), flush=True)


def late() -> None:
    ready.wait()
    print("thread", (kept * 2).sum().item(), flush=True)


ready = threading.Event()
threading.Thread(target=late).start()
first, second = Holder("first"), Holder("second")
atexit.register(last, "one")
weakref.finalize(first, print, "finalizer of the first")
atexit.register(last, "two")
cycle: Any = Holder("in a cycle")
cycle.itself = cycle
del first, cycle
print("end of the program", flush=True)
ready.set()
