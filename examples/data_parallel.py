"""Train a small network on several processes, one GPU each, with PyTorch's own data parallelism.

    torchrun --nproc-per-node 2 data_parallel.py                # DistributedDataParallel
    torchrun --nproc-per-node 2 data_parallel.py --shard        # fully_shard (FSDP2)
    torchrun --nproc-per-node 2 -m streamsan run --device virtual data_parallel.py
    python data_parallel.py                                     # one process, the same result

All processes draw the same batches and take their share of each, so the weights do not depend on
how many there are, but for rounding. The first one prints their sum, and saves them to --weights.
"""

from __future__ import annotations

import argparse
import os
from collections import OrderedDict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

FEATURES, WIDTH, CLASSES, BATCH, BLOCKS = 16, 32, 4, 32, 2


class Block(nn.Module):
    """A residual block over (batch, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """The block of (batch, WIDTH)."""
        return x + self.down(F.gelu(self.up(self.norm(x))))


def network() -> nn.Sequential:
    """Logits of (batch, FEATURES)."""
    layers = OrderedDict[str, nn.Module]()
    layers["first"] = nn.Linear(FEATURES, WIDTH)
    layers.update({f"block{number}": Block() for number in range(BLOCKS)})
    layers["last"] = nn.Linear(WIDTH, CLASSES)
    return nn.Sequential(layers)


def distribute(model: nn.Sequential, shard: bool) -> nn.Module:
    """The model as the processes share it: sharded by block, or replicated."""
    if not shard:
        return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def train(model: nn.Module, steps: int, rank: int, ranks: int) -> None:
    """Train on `steps` random batches, of which this process takes its share."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        inputs = torch.randn(BATCH, FEATURES, generator=generator)
        labels = torch.randint(CLASSES, (BATCH,), generator=generator)
        mine = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
        loss = F.cross_entropy(model(inputs[mine].cuda()), labels[mine].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    """Train, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--shard", action="store_true", help="shard the model")
    parser.add_argument("--weights", type=Path, help="save the weights to this file")
    options = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.manual_seed(0)
    model = network().cuda()
    if ranks > 1:
        dist.init_process_group("nccl")
        train(distribute(model, options.shard), options.steps, rank, ranks)
    else:
        train(model, options.steps, rank, ranks)
    weights = {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu()
        for name, value in model.named_parameters()
    }
    if rank == 0:
        print(
            f"sum of weights {sum(float(value.double().sum()) for value in weights.values()):.6f}"
        )
        if options.weights:
            torch.save(weights, options.weights)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
