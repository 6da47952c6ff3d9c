"""A handle is left alone because a later collective of the group, in the blocking form, is done.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (collective)
twin: n2_blocking_after_async_clean
why: since release 2.8 the blocking form runs on the current stream, which waits for nothing.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    total = torch.ones(SIZE, device="cuda")
    count = torch.ones(SIZE, device="cuda")
    handle = dist.all_reduce(total, async_op=True)  # RACE a
    dist.all_reduce(count)
    mean = total / count  # RACE a
    handle.wait()
    print(tuple(mean.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
