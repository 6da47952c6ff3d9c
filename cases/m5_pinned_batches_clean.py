"""Every batch is collated into a new pinned tensor, and the old one is dropped.

rule: M5, C3
kind: R09-H2D-SRC-WRITE
verdict: clean
source: torch notes, CUDA semantics (pinned buffers)
twin: m5_pinned_batches_race
why: a dropped pinned block returns to its pool only when the uploads from it are done.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    inputs = torch.zeros(SIZE, device="cuda")
    total = torch.zeros(SIZE, device="cuda")
    batch = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize()

    for step in range(3):
        batch = torch.empty(SIZE, pin_memory=True)
        batch.fill_(float(step))
        inputs.copy_(batch, non_blocking=True)
        total.add_(inputs)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
