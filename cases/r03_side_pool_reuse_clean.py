"""A block of a side stream is marked for the default stream before it is given up.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: own
twin: r03_side_pool_reuse_race
why: record_stream delays the reuse.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    target = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    for _ in range(3):
        with torch.cuda.stream(side):
            batch = torch.full((SIZE,), 2.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        torch.mul(batch, 2.0, out=target)
        batch.record_stream(torch.cuda.current_stream())
        del batch

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
