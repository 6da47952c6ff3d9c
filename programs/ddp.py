"""DistributedDataParallel at world size 1 over NCCL: buckets, no_sync, a ZeRO optimizer.

needs: torch.distributed
"""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from common import options, show, show_weights
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from transformer import batches, next_token_loss, sized


def main() -> None:
    """Train a few steps, each over two micro-batches of which the second synchronises."""
    args = options(__doc__)
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if args.device == "cuda" else "gloo",
            init_method="file://" + os.path.join(folder, "meeting"),
            rank=0,
            world_size=1,
        )
        model = DistributedDataParallel(
            sized(args.small).to(device),
            device_ids=[0] if args.device == "cuda" else None,
            bucket_cap_mb=1,
            gradient_as_bucket_view=True,
        )
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
        losses = []
        for tokens in batches(args.steps, args.small):
            first, second = tokens.to(device).chunk(2)
            optimizer.zero_grad()
            with model.no_sync():
                next_token_loss(model, first).backward()
            loss = next_token_loss(model, second)
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            work = dist.all_reduce(total, async_op=True)
            work.wait()
            losses.append(total)
        show("loss", torch.stack(losses).tolist())
        show_weights(model)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
