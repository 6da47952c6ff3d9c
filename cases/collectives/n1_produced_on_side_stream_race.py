"""A gradient is produced on a side stream and all-reduced under the default stream.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n1_produced_on_side_stream_clean
why: the collective comes after the stream that is current at the call, and no other.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    gradient = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        gradient.add_(1.0)  # RACE a
    dist.all_reduce(gradient)  # RACE a
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
