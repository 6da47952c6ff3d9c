"""The value of a collective's future is used without waiting for the future.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_future_value_clean
why: the future is complete at once, and its value comes without any order.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    future = dist.all_reduce(gradient, async_op=True).get_future()  # RACE a
    mean = future.value()[0].mean()  # RACE a
    future.wait()
    print(tuple(mean.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
