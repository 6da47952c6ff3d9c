"""A page is cleared behind its non-blocking swap-out.

rule: C7, H1, S3
kind: R02-SLOT-WAR
verdict: race
source: torch notes, CUDA semantics (non_blocking)
twin: c7_swap_out_clean
why: the copy stream reads page while the default stream clears it (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    page = torch.ones(SIZE, device="cuda")
    host_page = torch.zeros(SIZE, pin_memory=True)
    swap_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        host_page.copy_(page, non_blocking=True)  # RACE a
    page.zero_()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
