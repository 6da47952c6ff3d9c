"""A reduction within a node and one across nodes, the second enqueued behind the first's wait.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n1_two_communicators_race
why: the second collective comes after the current stream, and that after the first.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    within, across = dist.new_group([0]), dist.new_group([0])
    gradient = torch.ones(SIZE, device="cuda")
    first = dist.all_reduce(gradient, group=within, async_op=True)
    first.wait()
    second = dist.all_reduce(gradient, group=across, async_op=True)
    second.wait()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
