"""A raw collective's buffer is recorded on its stream before it is dropped.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n1_raw_buffer_reused_race
why: record_stream keeps the block from the next tensor until the collective is done.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    communication = torch.cuda.Stream()
    gradient = torch.ones(SIZE, device="cuda")
    reduced = torch.empty(SIZE, device="cuda")
    communication.wait_stream(torch.cuda.current_stream())
    torch.cuda.nccl.all_reduce([gradient], [reduced], streams=[communication])
    gradient.record_stream(communication)
    del gradient
    activation = torch.zeros(SIZE, device="cuda")
    torch.cuda.current_stream().wait_stream(communication)
    print(tuple(activation.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
