"""The allocator's figures and the places of blocks, over training steps and temporary tensors.

device: cuda
"""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 900, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images = torch.randn(64, 3, 32, 32, device="cuda")
side = torch.cuda.Stream()
start = images.data_ptr()


def step(rows: int) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss = model(images[:rows]).square().mean()
    loss.backward()
    optimizer.step()
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        copy = images * 2
        copy.record_stream(torch.cuda.default_stream())
    torch.cuda.synchronize()
    print(copy.data_ptr() - start, loss.item().hex())


for rows in (64, 16, 48, 64, 7, 33):
    step(rows)
try:
    kept = torch.ones(1 << 20, device="cuda")
    (kept + 1)[3, 3]
except IndexError:
    print("inside of a handler:", torch.cuda.memory_allocated())
print("after it:", torch.cuda.memory_allocated())
for name, value in sorted(torch.cuda.memory_stats().items()):
    print(name, value)
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated())
