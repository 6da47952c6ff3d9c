"""The overflow check of unscaled gradients runs inside the stream that unscales them.

rule: C7, S3
kind: R01-PROD-CONS
verdict: clean
source: torch notes, CUDA semantics (implicit synchronization)
twin: c7_overflow_check_race
why: reading the flag synchronizes the side stream, so the host and later work come after it.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    gradient = torch.randn(SIZE, device="cuda")
    weight = torch.randn(SIZE, device="cuda")
    peak = torch.zeros((), device="cuda")
    unscale_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(unscale_stream):
        gradient.mul_(0.5)
        torch.amax(gradient, dim=0, out=peak)
        largest = peak.item()
    weight.sub_(gradient)

    torch.cuda.synchronize()
    print(largest >= 0.0)


if __name__ == "__main__":
    main()
