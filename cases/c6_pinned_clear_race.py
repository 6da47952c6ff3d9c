"""A pinned mask is cleared for the next request while its upload may be in flight.

rule: C6, C3, E3
kind: R09-H2D-SRC-WRITE
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c6_pinned_clear_clean
why: clearing pinned memory happens on the host at once; the upload reads the mask later (WAR).
"""

import torch

SIZE = 1 << 16


def main() -> None:
    mask = torch.ones(SIZE, dtype=torch.bool, pin_memory=True)
    device_mask = torch.zeros(SIZE, dtype=torch.bool, device="cuda")
    uploaded = torch.cuda.Event()
    torch.cuda.synchronize()

    device_mask.copy_(mask, non_blocking=True)  # RACE a
    uploaded.record()
    mask.zero_()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
