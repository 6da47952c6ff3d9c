"""The storage of a shard is made larger while a side stream still fills it.

rule: M1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_storage_grows_clean
why: growing copies the old bytes on the default stream, which nothing orders after the fill (RAW); the old block is freed too.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    shard = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        shard.fill_(1.0)  # RACE a
    shard.untyped_storage().resize_(2 * shard.nbytes)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
