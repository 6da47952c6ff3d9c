"""One pinned page carries the sampling parameters, and the host waits for each upload.

rule: C3, E3
kind: R09-H2D-SRC-WRITE
verdict: clean
source: torch notes, CUDA semantics (pinned buffers)
twin: c3_sampling_parameters_race
why: the host refills the page only after the event behind the last upload.
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
        uploaded.synchronize()
        page.fill_(1.0 + step)
        temperatures.copy_(page, non_blocking=True)
        uploaded.record()
        logits.div_(temperatures)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
