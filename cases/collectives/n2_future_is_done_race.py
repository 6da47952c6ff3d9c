"""A collective is taken for done because its future says so.

rule: N2, E4
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_future_is_done_clean
why: a future of device tensors is done when it is made; only waiting for it orders a stream.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    handle = dist.all_reduce(gradient, async_op=True)  # RACE a
    future = handle.get_future()
    while not future.done():
        pass
    update = gradient * -0.1  # RACE a
    handle.wait()
    print(tuple(update.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
