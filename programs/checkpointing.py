"""Activation checkpointing in three forms: reentrant, not reentrant, and selective."""

from __future__ import annotations

from functools import partial

import torch
from common import options, show, show_weights
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from transformer import Transformer, batches, next_token_loss, sized


def keep_products(_context: object, op: object, *_args: object, **_named: object) -> object:
    """Keep the results of matrix products, compute the rest again."""
    kept = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE


class Checkpointed(nn.Module):
    """A transformer whose blocks are checkpointed in one of the forms."""

    def __init__(self, model: Transformer, form: str) -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of `tokens`."""
        model = self.model
        x = model.embed(tokens)
        if self.form == "sequential":
            x = checkpoint_sequential(model.blocks, 2, x, use_reentrant=False)
        else:
            extra = {}
            if self.form == "selective":
                extra = {"context_fn": partial(create_selective_checkpoint_contexts, keep_products)}
            for block in model.blocks:
                x = checkpoint(block, x, use_reentrant=self.form == "reentrant", **extra)
        logits: Tensor = model.head(model.norm(x))
        return logits


def main() -> None:
    """Train a few steps in each form."""
    args = options(__doc__, steps=4)
    for form in ("reentrant", "sequential", "selective"):
        torch.manual_seed(0)
        model = Checkpointed(sized(args.small), form).to(args.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        losses = []
        for tokens in batches(args.steps, args.small):
            optimizer.zero_grad()
            loss = next_token_loss(model, tokens.to(args.device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        show(form, losses)
        show_weights(model)


if __name__ == "__main__":
    main()
