"""A functional collective is called as a bare operator, and its tensor waited for.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_functional_without_wait_race
why: wait_tensor orders the current stream after the collective.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    name = dist.group.WORLD.group_name
    reduced = torch.ops._c10d_functional.all_reduce(gradient, "sum", name)
    reduced = torch.ops._c10d_functional.wait_tensor(reduced)
    norm = torch.linalg.vector_norm(reduced)
    print(tuple(norm.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
