"""Two halves of a freed block go to two owners, and the second half is still read.

rule: M1
kind: R03-ALLOC-REUSE
verdict: race
source: own
twin: r03_split_block_clean
why: the side stream reads the second half of batch, which right's fill writes (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    batch = torch.zeros(2 * 1024 * 1024, device="cuda")
    half = torch.empty(1024 * 1024, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        half.copy_(batch[1024 * 1024 :])  # RACE a
    del batch
    left = torch.full((1024 * 1024,), 1.0, device="cuda")
    right = torch.full((1024 * 1024,), 2.0, device="cuda")  # RACE a
    torch.cuda.synchronize()
    del left, right

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
