"""One half of a flat buffer is reduced while the optimizer steps over all of it.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_shards_overlap_clean
why: the step writes the half in flight too, and comes before the wait.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    flat = torch.ones(2 * SIZE, device="cuda")
    first, second = flat.split(SIZE)
    handle = dist.all_reduce(second, async_op=True)  # RACE a
    flat.mul_(0.5)  # RACE a
    handle.wait()
    print(tuple(first.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
