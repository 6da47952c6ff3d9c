"""A metrics reader polls the event of the slot that it reads.

rule: E4, C3
kind: R08-D2H-HOST-READ
verdict: clean
source: CUDA Runtime API, cudaEventQuery
twin: e4_poll_ring_race
why: a query that answers done is as good as a synchronize of that event.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    torch.manual_seed(0)
    metrics = [torch.rand(SIZE, device="cuda") for _ in range(2)]
    host_metrics = [torch.zeros(SIZE, pin_memory=True) for _ in metrics]
    arrived = [torch.cuda.Event() for _ in metrics]
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(copy_stream):
        for source, target, event in zip(metrics, host_metrics, arrived):
            target.copy_(source, non_blocking=True)
            event.record()
    while not arrived[1].query():
        pass
    mean = float(host_metrics[1].mean())

    torch.cuda.synchronize()
    print(mean <= 1.0)


if __name__ == "__main__":
    main()
