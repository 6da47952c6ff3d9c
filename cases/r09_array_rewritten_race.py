"""The slot that is being uploaded is filled again through an array that shares pinned memory.

rule: C3, H1
kind: R09-H2D-SRC-WRITE
verdict: race
source: torch notes, CUDA semantics (pinned memory buffers)
twin: r09_array_rewritten_clean
why: the host writes bytes that the upload reads, without having waited.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    staging = torch.ones(2, SIZE, pin_memory=True)
    rows = torch.empty(SIZE, device="cuda")
    upload_stream = torch.cuda.Stream()
    slots = staging.numpy()
    torch.cuda.synchronize()

    with torch.cuda.stream(upload_stream):
        rows.copy_(staging[0], non_blocking=True)  # RACE a
    slots[0] = 2.0  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
