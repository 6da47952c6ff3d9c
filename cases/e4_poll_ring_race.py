"""A metrics reader polls the event of the older slot and reads the newer one.

rule: E4, C3
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, cudaEventQuery
twin: e4_poll_ring_clean
why: the poll that answered done covers slot 0; the download into slot 1 may be in flight.
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
            target.copy_(source, non_blocking=True)  # RACE a
            event.record()
    while not arrived[0].query():
        pass
    mean = float(host_metrics[1].mean())  # RACE a

    torch.cuda.synchronize()
    print(mean <= 1.0)


if __name__ == "__main__":
    main()
