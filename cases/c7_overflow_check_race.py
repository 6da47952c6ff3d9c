"""The overflow check of unscaled gradients runs outside the stream that unscales them.

rule: C7, S3
kind: R01-PROD-CONS
verdict: race
source: torch notes, CUDA semantics (implicit synchronization)
twin: c7_overflow_check_clean
why: the check synchronizes the default stream, which was never ordered after the unscaling.
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
        gradient.mul_(0.5)  # RACE a
        torch.amax(gradient, dim=0, out=peak)  # RACE b
    largest = peak.item()  # RACE b
    weight.sub_(gradient)  # RACE a

    torch.cuda.synchronize()
    print(largest >= 0.0)


if __name__ == "__main__":
    main()
