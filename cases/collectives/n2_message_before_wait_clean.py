"""A stage of a pipeline uses what it received behind the wait.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_message_before_wait_race
why: wait() orders the default stream after the messages.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    sent = torch.ones(SIZE, device="cuda")
    received = torch.zeros(SIZE, device="cuda")
    operations = [dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)]
    handles = dist.batch_isend_irecv(operations)
    for handle in handles:
        handle.wait()
    output = received * 2.0
    print(tuple(output.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
