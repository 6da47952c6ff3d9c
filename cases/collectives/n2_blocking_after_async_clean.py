"""A handle is waited for beside a later collective of the group in the blocking form.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (collective)
twin: n2_blocking_after_async_race
why: wait() orders the current stream after the first collective; the second runs on it.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    total = torch.ones(SIZE, device="cuda")
    count = torch.ones(SIZE, device="cuda")
    handle = dist.all_reduce(total, async_op=True)
    dist.all_reduce(count)
    handle.wait()
    mean = total / count
    print(tuple(mean.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
