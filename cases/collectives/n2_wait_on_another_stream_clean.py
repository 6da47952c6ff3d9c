"""The handle of an all-reduce is waited for under the stream that uses its result.

rule: N2
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n2_wait_on_another_stream_race
why: wait() orders the default stream, on which the result is used.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    weight = torch.ones(SIZE, device="cuda")
    logging = torch.cuda.Stream()
    handle = dist.all_reduce(weight, async_op=True)
    handle.wait()
    half = weight * 0.5
    print(tuple(half.shape), logging.query())
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
