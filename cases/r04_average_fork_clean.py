"""The averaging stream waits for the optimizer after the update of the weights.

rule: E2, S1
kind: R04-EDGE-WRONG
verdict: clean
source: own; exponential moving average on a side stream
twin: r04_average_fork_race
why: the wait covers the update, and the next update would wait for the average.
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
        weights.sub_(gradient, alpha=0.01)
        average_stream.wait_stream(compute_stream)
        with torch.cuda.stream(average_stream):
            average.lerp_(weights, 0.1)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
