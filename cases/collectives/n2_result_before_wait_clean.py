"""A gradient is applied once the handle of its all-reduce was waited for.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_result_before_wait_race
why: wait() orders the default stream after the communicator's.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    weight = torch.zeros(SIZE, device="cuda")
    handle = dist.all_reduce(gradient, async_op=True)
    handle.wait()
    weight.sub_(gradient, alpha=0.1)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
