"""FullyShardedDataParallel at world size 1 over NCCL: mixed precision, prefetching, CPU offload.

needs: torch.distributed
device: cuda
"""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from common import options, show
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformer import Block, batches, next_token_loss, sized


def main() -> None:
    """Train a few steps with and without the weights on the host."""
    args = options(__doc__, steps=4)
    with tempfile.TemporaryDirectory() as folder:
        meeting = "file://" + os.path.join(folder, "meeting")
        dist.init_process_group("nccl", init_method=meeting, rank=0, world_size=1)
        for offload in (False, True):
            torch.manual_seed(0)
            model = FullyShardedDataParallel(
                sized(args.small),
                auto_wrap_policy=ModuleWrapPolicy({Block}),
                mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
                backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
                forward_prefetch=True,
                limit_all_gathers=True,
                cpu_offload=CPUOffload(offload),
                device_id=0,
                use_orig_params=True,
            )
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            losses = []
            for tokens in batches(args.steps, args.small):
                optimizer.zero_grad()
                loss = next_token_loss(model, tokens.cuda())
                loss.backward()
                model.clip_grad_norm_(1.0)
                optimizer.step()
                losses.append(loss.item())
            show("offloaded" if offload else "loss", losses)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
