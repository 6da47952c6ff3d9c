"""A compiled graph's operator makes a storage larger while a side stream still fills it.

rule: M1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_storage_bytes_clean
why: growing copies the old bytes on the default stream, which nothing orders after the fill (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    gathered = torch.zeros(SIZE, device="cuda")
    size = gathered.untyped_storage().nbytes()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        gathered.fill_(1.0)  # RACE a
    torch.ops.inductor.resize_storage_bytes_(gathered, 2 * size)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
