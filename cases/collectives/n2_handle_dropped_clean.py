"""A reduce-scatter in the blocking form, which waits by itself.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_handle_dropped_race
why: the blocking form orders the current stream after the collective.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradients = torch.ones(SIZE, device="cuda")
    mine = torch.empty(SIZE, device="cuda")
    dist.reduce_scatter_tensor(mine, gradients)
    norm = torch.linalg.vector_norm(mine)
    print(tuple(norm.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
