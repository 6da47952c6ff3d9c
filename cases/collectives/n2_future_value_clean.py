"""The value of a collective's future is what its wait returns.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_future_value_race
why: waiting for the future orders the current stream.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    future = dist.all_reduce(gradient, async_op=True).get_future()
    mean = future.wait()[0].mean()
    print(tuple(mean.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
