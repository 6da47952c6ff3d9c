"""Random numbers: the same ones, and the same states behind them."""

from __future__ import annotations

import hashlib
import random
import sys

import torch

device = sys.argv[1]


def state(name: str, content: object) -> None:
    print(name, hashlib.sha256(repr(content).encode()).hexdigest()[:16])


random.seed(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()).to(device)
inputs = torch.randn(64, 16).to(device)
for _ in range(10):
    model(inputs).square().mean().backward()
state("python", random.getstate())
state("torch", torch.get_rng_state().tolist())
print("drawn", random.random(), torch.rand(3).tolist(), torch.randperm(8).tolist())
print("seed", torch.initial_seed(), torch.default_generator.initial_seed())
forked = torch.random.fork_rng(devices=[])
with forked:
    torch.rand(100)
print("after a fork", torch.rand(2).tolist())
