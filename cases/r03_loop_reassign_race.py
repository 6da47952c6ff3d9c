"""A loop variable is reassigned while a side stream still reads its last tensor.

rule: M1
kind: R03-ALLOC-REUSE
verdict: race
source: own
twin: r03_loop_reassign_clean
why: each third batch lies where the first did, which the side stream reads unordered (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    sums = torch.zeros(6, SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    for step in range(6):
        batch = torch.full((SIZE,), float(step), device="cuda")  # RACE a
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sums[step].copy_(batch)  # RACE a
    torch.cuda.synchronize()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
