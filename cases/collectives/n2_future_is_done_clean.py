"""A collective is taken for done because its handle says so.

rule: N2, E4
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_future_is_done_race
why: is_completed() asks the device: a yes is a query (E4), and the host comes after the collective.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    handle = dist.all_reduce(gradient, async_op=True)
    while not handle.is_completed():
        pass
    update = gradient * -0.1
    print(tuple(update.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
