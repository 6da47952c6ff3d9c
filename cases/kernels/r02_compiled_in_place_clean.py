"""A compiled update rewrites its argument once the side stream has read it.

rule: S1, E2
kind: R02-SLOT-WAR
verdict: clean
source: own
twin: r02_compiled_in_place_race
only: cuda
why: the default stream waits for the reader before the update.
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
        seen.copy_(average)
    torch.cuda.current_stream().wait_stream(side)
    update(average, value)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
