"""A number is copied into a tensor that another stream has read.

rule: C7, S3
kind: R02-SLOT-WAR
verdict: clean
source: own
twin: c7_number_copied_in_race
why: the default stream waits for side before the copy of the number writes scale.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    scale = torch.ones(1, device="cuda")
    values = torch.ones(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        values.mul_(scale)
    torch.cuda.current_stream().wait_stream(side)
    torch.ops.aten.copy_(scale, 3.0)

    torch.cuda.synchronize()
    print(values.shape)


if __name__ == "__main__":
    main()
