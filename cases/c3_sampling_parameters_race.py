"""One pinned page carries the sampling parameters of every decode step.

rule: C3, E3
kind: R09-H2D-SRC-WRITE
verdict: race
source: torch notes, CUDA semantics (pinned buffers)
twin: c3_sampling_parameters_clean
why: the next step's parameters are written while the upload of this step may still read the page.
"""

import torch

SIZE = 1 << 14


def main() -> None:
    page = torch.zeros(SIZE, pin_memory=True)
    temperatures = torch.zeros(SIZE, device="cuda")
    logits = torch.ones(SIZE, device="cuda")
    uploaded = torch.cuda.Event()
    uploaded.record()
    torch.cuda.synchronize()

    for step in range(3):
        page.fill_(1.0 + step)  # RACE a
        temperatures.copy_(page, non_blocking=True)  # RACE a
        uploaded.record()
        logits.div_(temperatures)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
