"""A compiled graph's operator makes a storage larger once the side stream has filled it.

rule: M1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r01_storage_bytes_race
why: the default stream waits for the fill before it copies what the storage holds.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    gathered = torch.zeros(SIZE, device="cuda")
    size = gathered.untyped_storage().nbytes()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        gathered.fill_(1.0)
    torch.cuda.current_stream().wait_stream(side)
    torch.ops.inductor.resize_storage_bytes_(gathered, 2 * size)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
