"""The averaging stream waits for the optimizer before the optimizer has updated the weights.

rule: E2, S1
kind: R04-EDGE-WRONG
verdict: race
source: own; exponential moving average on a side stream
twin: r04_average_fork_clean
why: the wait covers nothing of the update, so the average may read half-updated weights.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(SIZE, device="cuda")
    gradient = torch.randn(SIZE, device="cuda")
    average = torch.zeros(SIZE, device="cuda")
    compute_stream = torch.cuda.current_stream()
    average_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    for _ in range(3):
        compute_stream.wait_stream(average_stream)
        average_stream.wait_stream(compute_stream)
        weights.sub_(gradient, alpha=0.01)  # RACE a
        with torch.cuda.stream(average_stream):
            average.lerp_(weights, 0.1)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
