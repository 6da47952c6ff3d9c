"""torch.cuda.make_graphed_callables: the blocks' forward and backward passes as graphs.

On the CPU the blocks run as they are.
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from transformer import batches, next_token_loss, sized


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    model = sized(args.small).to(args.device)
    data = batches(args.steps, args.small)
    if args.device == "cuda":
        rows, length = data[0].shape
        width = model.embed.embedding_dim
        samples = tuple(
            (torch.randn(rows, length - 1, width, device="cuda", requires_grad=True),)
            for _ in model.blocks
        )
        torch.cuda.make_graphed_callables(tuple(model.blocks), samples)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    losses = []
    for tokens in data:
        optimizer.zero_grad()
        loss = next_token_loss(model, tokens.to(args.device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()
