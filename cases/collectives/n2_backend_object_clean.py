"""A communication hook calls the group's backend itself, and waits before it applies.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_backend_object_race
why: wait() orders the default stream after the communicator's.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    gradient = torch.ones(SIZE, device="cuda")
    weight = torch.zeros(SIZE, device="cuda")
    handle = backend.allreduce([gradient])
    handle.wait()
    weight.sub_(gradient, alpha=0.1)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
