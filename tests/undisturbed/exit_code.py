"""The program's own status, from inside of a function with tensors and an open context."""

from __future__ import annotations

import contextlib
import sys

import torch

device = sys.argv[1]


def leave() -> None:
    kept = [torch.ones(64, device=device) * i for i in range(4)]
    with contextlib.suppress(ValueError):
        print(sum(tensor.sum().item() for tensor in kept))
        sys.exit(int(kept[3][0].item()) + 40)


leave()
