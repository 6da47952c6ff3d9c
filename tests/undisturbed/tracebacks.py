"""Tracebacks as the program prints them in its own handlers.

device: cuda
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch

square = torch.ones(8, 8, device="cuda")
other = torch.ones(3, 5, device="cuda")
weight = torch.ones(8, device="cuda", requires_grad=True)


def fail(gradient: Any) -> None:
    raise ValueError(tuple(gradient.shape))


def hooked() -> None:
    product = weight * 3
    product.register_hook(fail)
    product.sum().backward()


SITUATIONS: list[Callable[[], Any]] = [
    lambda: torch.mm(square + 1, other),
    lambda: torch.cat([square, other]),
    lambda: torch.ones(3, device="cuda").view(7),
    lambda: torch.empty(1 << 46, device="cuda"),
    lambda: torch.nn.functional.linear(square, other),
    lambda: square[9],
    lambda: square.copy_(other),
    lambda: other.to("cpu").item(),
    lambda: weight.resize_(3),
    lambda: torch.nn.functional.cross_entropy(square, torch.zeros(3, dtype=torch.long).cuda()),
    lambda: (square + 1).sum().backward(),
    hooked,
]

for situation in SITUATIONS:
    try:
        situation()
    except Exception:  # noqa: PERF203 -- this is what is looked at
        print(traceback.format_exc().partition("memory. Tried")[0])
