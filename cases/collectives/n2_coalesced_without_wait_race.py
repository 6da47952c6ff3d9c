"""Coalesced all-reduces are used without waiting for the handle of the whole.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_coalesced_without_wait_clean
why: the collectives are issued where the block ends, and only its handle orders anything.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    first = torch.ones(SIZE, device="cuda")
    second = torch.ones(SIZE, device="cuda")
    with dist._coalescing_manager(async_ops=True) as manager:  # RACE a
        dist.all_reduce(first)
        dist.all_reduce(second)
    total = first + 1.0  # RACE a
    manager.wait()
    print(tuple(total.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
