"""A loop variable is reassigned behind its reader.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: own
twin: r03_loop_reassign_race
why: the default stream waits for each read.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    sums = torch.zeros(6, SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    for step in range(6):
        batch = torch.full((SIZE,), float(step), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sums[step].copy_(batch)
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
