"""An optimizer thread is told to go on after the average of the weights is synchronized.

rule: T1, H1, S3
kind: R02-SLOT-WAR
verdict: clean
source: Python documentation, threading (Event)
twin: t1_event_race
why: the signal carries the order of the synchronize to the update that the thread enqueues.
"""

import threading

import torch

SIZE = 1 << 18


def update(weights: torch.Tensor, averaged: threading.Event) -> None:
    averaged.wait()
    weights.mul_(0.99)


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(SIZE, device="cuda")
    average = torch.zeros(SIZE, device="cuda")
    averaged = threading.Event()
    average_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    optimizer = threading.Thread(target=update, args=(weights, averaged))
    optimizer.start()
    with torch.cuda.stream(average_stream):
        average.lerp_(weights, 0.1)
    average_stream.synchronize()
    averaged.set()
    optimizer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
