"""A buffer is grown behind the side stream that fills it.

rule: M1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r01_resize_grows_race
why: the default stream waits for side before it grows the buffer.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    buffer = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        buffer.fill_(1.0)
    torch.cuda.current_stream().wait_stream(side)
    buffer.resize_(2 * SIZE)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
