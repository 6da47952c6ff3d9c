"""An exception that nobody catches, from the backward of the program's own function."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

device = sys.argv[1]


class Scale(torch.autograd.Function):
    """Doubles."""

    @staticmethod
    def forward(_: Any, tensor: Tensor) -> Tensor:
        return tensor * 2

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        scaled = gradient * 2
        raise ValueError(f"no gradient of {tuple(scaled.shape)}")


def train() -> None:
    weight = torch.ones(8, device=device, requires_grad=True)
    apply: Any = Scale.apply
    loss = apply(weight * 2).sum()
    loss.backward()


train()
