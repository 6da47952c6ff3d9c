"""The input of an all-gather is cleared behind it.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_input_overwritten_race
why: wait() comes before the fill.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    shard = torch.ones(SIZE, device="cuda")
    whole = torch.empty(SIZE, device="cuda")
    handle = dist.all_gather_into_tensor(whole, shard, async_op=True)
    handle.wait()
    shard.zero_()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
