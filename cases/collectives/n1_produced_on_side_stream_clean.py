"""A gradient is produced on a side stream and all-reduced under that stream.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n1_produced_on_side_stream_race
why: the collective comes after the work of the stream that is current at the call.
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
        gradient.add_(1.0)
        dist.all_reduce(gradient)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
