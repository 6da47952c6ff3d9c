"""A pinned mask is cleared for the next request after its upload.

rule: C6, C3, E3
kind: R09-H2D-SRC-WRITE
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c6_pinned_clear_race
why: the host waits for the upload's event, and the fill is done when the call returns.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    mask = torch.ones(SIZE, dtype=torch.bool, pin_memory=True)
    device_mask = torch.zeros(SIZE, dtype=torch.bool, device="cuda")
    uploaded = torch.cuda.Event()
    torch.cuda.synchronize()

    device_mask.copy_(mask, non_blocking=True)
    uploaded.record()
    uploaded.synchronize()
    mask.zero_()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
