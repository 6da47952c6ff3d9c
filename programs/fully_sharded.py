"""fully_shard at world size 1 over NCCL: parameters gathered and freed round each block.

needs: torch.distributed
"""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from common import options, show
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformer import batches, next_token_loss, sized


def main() -> None:
    """Train a few steps."""
    args = options(__doc__)
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if args.device == "cuda" else "gloo",
            init_method="file://" + os.path.join(folder, "meeting"),
            rank=0,
            world_size=1,
        )
        mesh = init_device_mesh(device.type, (1,))
        model = sized(args.small).to(device)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for tokens in batches(args.steps, args.small):
            optimizer.zero_grad()
            loss = next_token_loss(model, tokens.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        show("loss", losses)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
