"""A neural differential equation of torchdiffeq, adaptive steps, gradients by the adjoint method.

needs: torchdiffeq
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from torch import Tensor, nn
from torchdiffeq import odeint_adjoint


class Field(nn.Module):
    """The learnt right-hand side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, _time: Tensor, state: Tensor) -> Tensor:
        """The derivative of `state` (batch, 2)."""
        derivative: Tensor = self.net(state**3)
        return derivative


def main() -> None:
    """Fit a spiral in a few steps."""
    args = options(__doc__, steps=4)
    width, batch = (16, 8) if args.small else (256, 512)
    model = Field(width).to(args.device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, foreach=True)
    time = torch.linspace(0.0, 1.0, 5).to(args.device)
    start = torch.linspace(-1, 1, 2 * batch).reshape(batch, 2).to(args.device)
    target = torch.stack([start * torch.exp(-t) for t in time])
    losses = []
    for _ in range(args.steps):
        optimizer.zero_grad()
        path = odeint_adjoint(model, start, time, rtol=1e-4, atol=1e-5)
        loss = (path - target).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()
