"""FlexAttention, compiled: a sliding window with document borders, forward and backward.

device: cuda
"""

from __future__ import annotations

import torch
from common import options, show
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def main() -> None:
    """Train projections under a mask that changes with the documents of each batch."""
    args = options(__doc__, steps=4)
    rows, heads, length, width = (2, 2, 256, 32) if args.small else (4, 8, 2048, 64)
    attend = torch.compile(flex_attention)
    weights = [torch.randn(width, width, device="cuda") / width**0.5 for _ in range(3)]
    for weight in weights:
        weight.requires_grad_()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    losses = []
    for step in range(args.steps):
        generator = torch.Generator().manual_seed(step)
        ends = torch.rand(rows, length, generator=generator) < 8 / length
        documents = ends.cumsum(-1).to("cuda")

        def visible(row: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same = documents[row, query] == documents[row, key]  # noqa: B023 -- used at once
            return same & (query >= key) & (query - key < 128)

        mask = create_block_mask(visible, rows, None, length, length, device="cuda")
        tokens = torch.randn(rows, heads, length, width, generator=generator).to("cuda")
        optimizer.zero_grad()
        mixed = attend(*(tokens @ weight for weight in weights), block_mask=mask)
        loss = (mixed - tokens.roll(1, dims=2)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)


if __name__ == "__main__":
    main()
