"""Coalesced all-reduces are used behind the wait for the handle of the whole.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_coalesced_without_wait_race
why: one wait covers all collectives of the block.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    first = torch.ones(SIZE, device="cuda")
    second = torch.ones(SIZE, device="cuda")
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(first)
        dist.all_reduce(second)
    manager.wait()
    total = first + second
    print(tuple(total.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
