"""A ring of concatenated frames wraps around over a frame in use.

rule: E3
kind: R02-SLOT-WAR
verdict: race
source: own
twin: r02_cat_ring_clean
why: the fourth cat writes ring[0] while the side stream still copies it (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    halves = [torch.randn(SIZE // 2, device="cuda") for _ in range(2)]
    ring = torch.zeros(3, SIZE, device="cuda")
    log = torch.zeros(5, SIZE, device="cuda")
    read = {}
    reader = torch.cuda.Stream()
    torch.cuda.synchronize()

    for step in range(5):
        slot = step % 3
        torch.cat(halves, out=ring[slot])  # RACE a
        reader.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(reader):
            log[step].copy_(ring[slot])  # RACE a
        read[slot] = torch.cuda.Event()
        read[slot].record(reader)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
