"""A stage of a pipeline uses what it received before the wait.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_message_before_wait_clean
why: the messages run on the group's stream, and the default stream has not waited.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    sent = torch.ones(SIZE, device="cuda")
    received = torch.zeros(SIZE, device="cuda")
    operations = [dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)]
    handles = dist.batch_isend_irecv(operations)  # RACE a
    output = received * 2.0  # RACE a
    for handle in handles:
        handle.wait()
    print(tuple(output.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
