"""Random numbers of the device, and its generator's state.

device: cuda
"""

from __future__ import annotations

import hashlib

import torch

torch.manual_seed(3)
generator = torch.Generator("cuda").manual_seed(5)
layer = torch.nn.Dropout(0.5)
for step in range(5):
    drawn = layer(torch.rand(1000, device="cuda")) + torch.randn(
        1000, device="cuda", generator=generator
    )
    order = torch.randperm(1000, device="cuda")[:4]
    print(step, drawn.sum().item().hex(), order.tolist())
for state in (torch.cuda.get_rng_state(), generator.get_state()):
    print(hashlib.sha256(bytes(state.tolist())).hexdigest()[:16])
print(torch.cuda.initial_seed(), generator.initial_seed())
