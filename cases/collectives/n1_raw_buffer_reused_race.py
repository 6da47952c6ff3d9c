"""A raw collective's buffer is dropped and its memory handed to the next tensor.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n1_raw_buffer_reused_clean
why: torch.cuda.nccl keeps nothing alive, and the side stream still reads the block.
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
    torch.cuda.nccl.all_reduce([gradient], [reduced], streams=[communication])  # RACE a
    del gradient
    activation = torch.zeros(SIZE, device="cuda")  # RACE a
    torch.cuda.current_stream().wait_stream(communication)
    print(tuple(activation.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
