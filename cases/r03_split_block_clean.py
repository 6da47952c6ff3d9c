"""Two halves of a freed block go to two owners after the second half was read.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: own
twin: r03_split_block_race
why: the default stream waits for the read.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    batch = torch.zeros(2 * 1024 * 1024, device="cuda")
    half = torch.empty(1024 * 1024, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        half.copy_(batch[1024 * 1024 :])
    torch.cuda.current_stream().wait_stream(side)
    del batch
    left = torch.full((1024 * 1024,), 1.0, device="cuda")
    right = torch.full((1024 * 1024,), 2.0, device="cuda")
    torch.cuda.synchronize()
    del left, right

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
