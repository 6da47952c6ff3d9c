"""A functional collective is called as a bare operator, and nobody waits for its tensor.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_functional_without_wait_clean
why: the operator returns at once; wait_tensor is what orders the current stream.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.ones(SIZE, device="cuda")
    name = dist.group.WORLD.group_name
    reduced = torch.ops._c10d_functional.all_reduce(gradient, "sum", name)  # RACE a
    norm = torch.linalg.vector_norm(reduced)  # RACE a
    torch.ops._c10d_functional.wait_tensor(reduced)
    print(tuple(norm.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
