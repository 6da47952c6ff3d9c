"""A pinned page is written by one device and read by another, each on its default stream.

rule: S1, E2, C3
kind: R15-MULTI-DEVICE
verdict: race
source: torch notes, CUDA semantics (streams per device)
twin: s1_default_streams_clean
devices: 2
why: each device has a default stream of its own, and no event joins them (RAW).
"""

import torch

SIZE = 1 << 16


def main() -> None:
    boundary = torch.ones(SIZE, device="cuda:0")
    received = torch.zeros(SIZE, device="cuda:1")
    page = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)

    page.copy_(boundary, non_blocking=True)  # RACE a
    received.copy_(page, non_blocking=True)  # RACE a

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    main()
