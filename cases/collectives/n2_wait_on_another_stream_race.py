"""An all-reduce is waited for under a side stream, and its result used on the default one.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: race
source: own
twin: n2_wait_on_another_stream_clean
why: wait() orders the stream that is current then, and no other.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    weight = torch.ones(SIZE, device="cuda")
    logging = torch.cuda.Stream()
    handle = dist.all_reduce(weight, async_op=True)  # RACE a
    with torch.cuda.stream(logging):
        handle.wait()
    half = weight * 0.5  # RACE a
    print(tuple(half.shape))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
