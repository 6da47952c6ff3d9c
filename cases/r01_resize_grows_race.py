"""A buffer is grown while a side stream still fills it.

rule: M1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_resize_grows_clean
why: growing copies the old bytes on the default stream, which nothing orders after the fill (RAW); the old block is freed too.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    buffer = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        buffer.fill_(1.0)  # RACE a
    buffer.resize_(2 * SIZE)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
