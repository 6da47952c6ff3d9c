"""An exception that nobody catches, from an operator in a function, with another one behind it."""

from __future__ import annotations

import sys

import torch

device = sys.argv[1]


def multiply(size: int) -> torch.Tensor:
    return torch.mm(torch.ones(size, size, device=device) + 1, torch.ones(3, 5, device=device))


def main() -> None:
    kept = torch.ones(4, device=device)
    try:
        multiply(8)
    except RuntimeError:
        print("first", kept.sum().item(), flush=True)
        multiply(9)


main()
