"""A transformer under torch.compile, forward and backward; the compiler writes Triton kernels.

On the CPU, where that would want a C++ compiler, the graphs run operator by operator.
"""

from __future__ import annotations

import torch
from common import options, show, show_weights
from transformer import batches, next_token_loss, sized


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    model = sized(args.small).to(args.device)
    compiled = torch.compile(model, backend="inductor" if args.device == "cuda" else "eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    losses = []
    for tokens in batches(args.steps, args.small):
        optimizer.zero_grad()
        loss = next_token_loss(compiled, tokens.to(args.device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show("loss", losses)
    show_weights(model)


if __name__ == "__main__":
    main()
