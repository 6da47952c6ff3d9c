"""Every batch is collated into the same pinned tensor.

rule: M5, C3
kind: R09-H2D-SRC-WRITE
verdict: race
source: torch notes, CUDA semantics (pinned buffers)
twin: m5_pinned_batches_clean
why: the pool protects blocks that were given back, not a live tensor that the host rewrites.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    inputs = torch.zeros(SIZE, device="cuda")
    total = torch.zeros(SIZE, device="cuda")
    batch = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize()

    for step in range(3):
        batch.fill_(float(step))  # RACE a
        inputs.copy_(batch, non_blocking=True)  # RACE a
        total.add_(inputs)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
