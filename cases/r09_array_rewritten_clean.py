"""The slot that is not being uploaded is filled through an array that shares pinned memory.

rule: C3, H1
kind: R09-H2D-SRC-WRITE
verdict: clean
source: torch notes, CUDA semantics (pinned memory buffers)
twin: r09_array_rewritten_race
why: the host fills the other slot while the upload runs, and this one after it has waited.
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
        rows.copy_(staging[0], non_blocking=True)
    slots[1] = 2.0
    upload_stream.synchronize()
    slots[0] = 2.0

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
