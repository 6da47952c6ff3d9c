"""A small transformer in plain torch, for the programs that are about the training loop."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and MLP to the residual stream (batch, length, width)."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Embedding, blocks and head over a vocabulary of 64."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, length, 64) of `tokens` (batch, length) int64."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def sized(small: bool, depth: int = 4) -> Transformer:
    """A transformer for a CPU (`small`) or for a GPU."""
    return Transformer(32, 2) if small else Transformer(512, depth)


def next_token_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    """Mean cross-entropy of predicting each token from those before it."""
    logits: Tensor = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def batches(steps: int, small: bool) -> list[Tensor]:
    """Token sequences on the host, int64 (batch, length): each counts by a step of its own."""
    batch, length = (2, 17) if small else (16, 257)
    rows = torch.arange(steps * batch)[:, None]
    tokens = (7 * rows + (1 + rows % 5) * torch.arange(length)) % 64
    return list(tokens.split(batch))
