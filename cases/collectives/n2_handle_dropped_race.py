"""The handle of a reduce-scatter is thrown away, and nothing waits for it.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_handle_dropped_clean
why: without its handle nothing orders the default stream after the communicator's.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradients = torch.ones(SIZE, device="cuda")
    mine = torch.empty(SIZE, device="cuda")
    dist.reduce_scatter_tensor(mine, gradients, async_op=True)  # RACE a
    norm = torch.linalg.vector_norm(mine)  # RACE a
    print(tuple(norm.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
