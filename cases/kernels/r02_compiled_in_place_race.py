"""A compiled update rewrites its argument while a side stream reads it.

rule: S1, E2
kind: R02-SLOT-WAR
verdict: race
source: own
twin: r02_compiled_in_place_clean
only: cuda
why: the generated kernel changes average in place, unordered with the reader (WAR).
"""

import torch

SIZE = 1 << 16


@torch.compile
def update(average: torch.Tensor, value: torch.Tensor) -> None:
    average.mul_(0.9).add_(value, alpha=0.1)


def main() -> None:
    torch.manual_seed(0)
    average = torch.zeros(SIZE, device="cuda")
    value = torch.randn(SIZE, device="cuda")
    seen = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    update(average, value)
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        seen.copy_(average)  # RACE a
    update(average, value)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
