"""A communication hook calls the group's backend itself, and applies the gradient at once.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_backend_object_clean
why: the update on the default stream reads what the communicator's stream still writes.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    gradient = torch.ones(SIZE, device="cuda")
    weight = torch.zeros(SIZE, device="cuda")
    handle = backend.allreduce([gradient])  # RACE a
    weight.sub_(gradient, alpha=0.1)  # RACE a
    handle.wait()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
