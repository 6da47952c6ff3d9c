"""The storage of a shard is made larger after a side stream has filled it.

rule: M1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r01_storage_grows_race
why: the default stream waits for the side stream before the old bytes are copied.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    shard = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        shard.fill_(1.0)
    torch.cuda.current_stream().wait_stream(side)
    shard.untyped_storage().resize_(2 * shard.nbytes)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
