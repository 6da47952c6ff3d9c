"""``KeyboardInterrupt`` in a backward pass: caught once, then the end of the program."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch

device = sys.argv[1]


def interrupt(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def step() -> None:
    tensor = torch.ones(8, device=device, requires_grad=True)
    (tensor * 2).sum().backward()
    interrupt(tensor.grad + 1)  # type: ignore[operator]
    (tensor * 2).sum().backward()


try:
    step()
except KeyboardInterrupt:
    print("caught", flush=True)
step()
print("not reached")
