"""One half of a flat buffer is reduced while the optimizer steps over the other.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_shards_overlap_race
why: the two share no byte.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    flat = torch.ones(2 * SIZE, device="cuda")
    first, second = flat.split(SIZE)
    handle = dist.all_reduce(second, async_op=True)
    first.mul_(0.5)
    handle.wait()
    second.mul_(0.5)
    print(tuple(first.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
