"""An optimizer thread is told to go on before the average of the weights is synchronized.

rule: T1, H1, S3
kind: R02-SLOT-WAR
verdict: race
source: Python documentation, threading (Event)
twin: t1_event_clean
why: the signal carries no order with the averaging stream, so the update may overtake it.
"""

import threading

import torch

SIZE = 1 << 18


def update(weights: torch.Tensor, averaged: threading.Event) -> None:
    averaged.wait()
    weights.mul_(0.99)  # RACE a


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
        average.lerp_(weights, 0.1)  # RACE a
    averaged.set()
    average_stream.synchronize()
    optimizer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
