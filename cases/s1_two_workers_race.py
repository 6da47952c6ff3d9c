"""Two worker threads add their shards to one total, each on a stream of its own.

rule: S1, T1
kind: R02-SLOT-WAR
verdict: race
source: CUDA Runtime API, stream synchronization behavior
twin: s1_two_workers_clean
why: both additions read and write total, and nothing orders the two streams (WAW).
"""

import threading

import torch

SIZE = 1 << 18


def accumulate(total: torch.Tensor, shard: torch.Tensor, stream: torch.cuda.Stream) -> None:
    with torch.cuda.stream(stream):
        total.add_(shard)  # RACE a


def main() -> None:
    torch.manual_seed(0)
    total = torch.zeros(SIZE, device="cuda")
    shards = [torch.randn(SIZE, device="cuda") for _ in range(2)]
    first_stream = torch.cuda.Stream()
    second_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    streams = (first_stream, second_stream)
    workers = [
        threading.Thread(target=accumulate, args=(total, shard, stream))
        for shard, stream in zip(shards, streams)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
