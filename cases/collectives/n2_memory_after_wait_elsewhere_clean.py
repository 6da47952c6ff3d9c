"""A gradient is dropped once a side stream, and behind it the default one, has waited.

rule: N2, M1
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_memory_after_wait_elsewhere_race
why: the default stream comes after the side stream, and that after the collective.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    side = torch.cuda.Stream()
    gradient = torch.ones(SIZE, device="cuda")
    handle = dist.all_reduce(gradient, async_op=True)
    with torch.cuda.stream(side):
        handle.wait()
    torch.cuda.current_stream().wait_stream(side)
    del gradient, handle
    activation = torch.zeros(SIZE, device="cuda")
    print(tuple(activation.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
