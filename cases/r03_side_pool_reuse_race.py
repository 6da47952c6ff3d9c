"""A block of a side stream is read on the default stream and reused on the side.

rule: M1
kind: R03-ALLOC-REUSE
verdict: race
source: own
twin: r03_side_pool_reuse_clean
why: the next full() on side writes what the default stream reads (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    target = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    for _ in range(3):
        with torch.cuda.stream(side):
            batch = torch.full((SIZE,), 2.0, device="cuda")  # RACE a
        torch.cuda.current_stream().wait_stream(side)
        torch.mul(batch, 2.0, out=target)  # RACE a
        del batch

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
