"""``sys.exit`` with a text, raised in a hook of a backward pass."""

from __future__ import annotations

import sys
from typing import Any

import torch

tensor = torch.ones(8, device=sys.argv[1], requires_grad=True)


def stop(gradient: Any) -> None:
    sys.exit(f"stopped at a gradient of {tuple(gradient.shape)}")


tensor.register_hook(stop)
(tensor * 2).sum().backward()
print("not reached")
