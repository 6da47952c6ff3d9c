"""Workers of a pool synchronise their own streams before they return.

rule: T1, H3
kind: R01-PROD-CONS
verdict: clean
source: own
twin: t1_pool_map_race
why: each worker waits for its stream, and map() hands that order over.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

SIZE = 1 << 18


def main() -> None:
    slots = torch.zeros(3, SIZE, device="cuda")
    total = torch.empty(SIZE, device="cuda")
    torch.cuda.synchronize()

    def fill(index: int) -> int:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            slots[index].fill_(float(index))
        stream.synchronize()
        return index

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(fill, range(3)))
    torch.sum(slots, dim=0, out=total)
    print(len(done))

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
