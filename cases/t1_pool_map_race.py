"""Workers of a pool fill slots on streams of their own, and their results are read at once.

rule: T1, H3
kind: R01-PROD-CONS
verdict: race
source: own
twin: t1_pool_map_clean
why: map() orders the host threads only; the fills are still running (RAW).
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
            slots[index].fill_(float(index))  # RACE a
        return index

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(fill, range(3)))
    torch.sum(slots, dim=0, out=total)  # RACE a
    print(len(done))

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
