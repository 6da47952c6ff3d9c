"""The input of an all-gather is cleared while it is in flight.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_input_overwritten_clean
why: the fill on the default stream writes what the communicator's stream still reads.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    shard = torch.ones(SIZE, device="cuda")
    whole = torch.empty(SIZE, device="cuda")
    handle = dist.all_gather_into_tensor(whole, shard, async_op=True)  # RACE a
    shard.zero_()  # RACE a
    handle.wait()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
