"""A gradient is dropped once a side stream has waited for its reduction.

rule: N2, M1
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_memory_after_wait_elsewhere_clean
why: the group gives it up at that wait, and the default stream, which has not waited, its memory.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    side = torch.cuda.Stream()
    gradient = torch.ones(SIZE, device="cuda")
    handle = dist.all_reduce(gradient, async_op=True)  # RACE a
    with torch.cuda.stream(side):
        handle.wait()
    del gradient, handle
    activation = torch.zeros(SIZE, device="cuda")  # RACE a
    print(tuple(activation.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
