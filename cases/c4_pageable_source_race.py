"""Rows of a pinned lookup table are changed behind a non-blocking upload.

rule: C4, C3
kind: R09-H2D-SRC-WRITE
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c4_pageable_source_clean
why: the upload reads the pinned rows when it runs, and the host changes them without waiting.
"""

import torch

ROWS, WIDTH = 256, 64


def main() -> None:
    table = torch.ones(ROWS, WIDTH).pin_memory()
    device_rows = torch.zeros(32, WIDTH, device="cuda")
    lookup_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    rows = table[64:96]
    with torch.cuda.stream(lookup_stream):
        device_rows.copy_(rows, non_blocking=True)  # RACE a
    table[95:].mul_(0.5)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
