"""A number is copied into a tensor that another stream still reads.

rule: C7, S3
kind: R02-SLOT-WAR
verdict: race
source: own
twin: c7_number_copied_in_clean
why: the copy of the number writes scale on the default stream while side reads it (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    scale = torch.ones(1, device="cuda")
    values = torch.ones(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        values.mul_(scale)  # RACE a
    torch.ops.aten.copy_(scale, 3.0)  # RACE a

    torch.cuda.synchronize()
    print(values.shape)


if __name__ == "__main__":
    main()
