"""Sequences of many lengths in one batch: jagged nested tensors with attention, padded at the end.

device: cuda
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import options, show, show_weights
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal self-attention over a jagged batch (rows, any length, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, tokens: Tensor) -> Tensor:
        """Attend; the result has the shape of `tokens`."""
        parts = self.project(tokens).chunk(3, dim=-1)
        queries, keys, values = (
            part.unflatten(-1, [self.heads, -1]).transpose(1, 2) for part in parts
        )
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    rows, width, longest = (4, 32, 24) if args.small else (32, 256, 512)
    model = nn.Sequential(Attention(width, 4), nn.LayerNorm(width), nn.Linear(width, width))
    model.to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(args.steps):
        generator = torch.Generator().manual_seed(step)
        lengths = torch.randint(longest // 4, longest, (rows,), generator=generator).tolist()
        sequences = [torch.randn(n, width, generator=generator).to(args.device) for n in lengths]
        batch = torch.nested.nested_tensor(sequences, layout=torch.jagged)
        optimizer.zero_grad()
        predicted = model(batch).to_padded_tensor(0.0)
        wanted = batch.to_padded_tensor(0.0)
        loss = F.mse_loss(predicted[:, :-1], wanted[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()
