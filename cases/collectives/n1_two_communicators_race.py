"""A reduction within a node and one across nodes, chained without a wait between them.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n1_two_communicators_clean
why: each group has a stream of its own, and nothing orders the second after the first.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    within, across = dist.new_group([0]), dist.new_group([0])
    gradient = torch.ones(SIZE, device="cuda")
    first = dist.all_reduce(gradient, group=within, async_op=True)  # RACE a
    second = dist.all_reduce(gradient, group=across, async_op=True)  # RACE a
    first.wait()
    second.wait()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
