"""A page is cleared behind its blocking swap-out.

rule: C7, H1, S3
kind: R02-SLOT-WAR
verdict: clean
source: torch notes, CUDA semantics (non_blocking)
twin: c7_swap_out_race
why: a copy without non_blocking ends with a synchronize of its stream, which the host passed.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    page = torch.ones(SIZE, device="cuda")
    host_page = torch.zeros(SIZE, pin_memory=True)
    swap_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        host_page.copy_(page, non_blocking=False)
    page.zero_()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
