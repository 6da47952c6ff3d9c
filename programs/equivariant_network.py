"""Rotation-equivariant layers of e3nn: spherical harmonics and tensor products over a point cloud.

needs: e3nn
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from e3nn import o3
from torch import nn


class Convolution(nn.Module):
    """Messages along edges, summed at their ends."""

    def __init__(self, inputs: str, outputs: str) -> None:
        super().__init__()
        self.harmonics = o3.Irreps("1x0e + 1x1o + 1x2e")
        self.product = o3.FullyConnectedTensorProduct(
            inputs, self.harmonics, outputs, shared_weights=False
        )
        self.weigh = nn.Sequential(
            nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, self.product.weight_numel)
        )

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Features of the nodes (n, inputs), `edges` (2, m), `places` (n, 3)."""
        source, target = edges
        away = places[source] - places[target]
        angles = o3.spherical_harmonics(self.harmonics, away, True, normalization="component")
        weights = self.weigh(away.norm(dim=1, keepdim=True))
        messages = self.product(nodes[source], angles, weights)
        empty = messages.new_zeros(len(nodes), messages.shape[1])
        return empty.index_add(0, target, messages) / 4


def main() -> None:
    """Fit energies of random clouds, and their forces by a second derivative."""
    args = options(__doc__, steps=4)
    count = 16 if args.small else 256
    first = Convolution("4x0e", "8x0e + 4x1o").to(args.device)
    second = Convolution("8x0e + 4x1o", "1x0e").to(args.device)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    losses = []
    for step in range(args.steps):
        places = torch.randn(count, 3, generator=torch.Generator().manual_seed(step))
        near = (torch.cdist(places, places) < 1.5).fill_diagonal_(False)
        edges = near.nonzero().t().to(args.device)
        places = places.to(args.device).requires_grad_()
        nodes = torch.ones(count, 4, device=args.device)
        energy = second(first(nodes, edges, places), edges, places).sum()
        (forces,) = torch.autograd.grad(energy, places, create_graph=True)
        loss = (energy / count - 1).square() + (forces + places).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(first)


if __name__ == "__main__":
    main()
