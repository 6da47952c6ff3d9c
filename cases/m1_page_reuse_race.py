"""A cache page is dropped during its swap-out, and its block is handed out again.

rule: M1
kind: R03-ALLOC-REUSE
verdict: race
source: torch notes, CUDA semantics (memory management)
twin: m1_page_reuse_clean
why: the swap stream reads the block while the default stream fills it as fresh.
"""

import torch

SIZE = 1 << 20


def main() -> torch.Tensor:
    host_page = torch.empty(SIZE, pin_memory=True)
    swap_stream = torch.cuda.Stream()
    page = torch.full((SIZE,), 1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        host_page.copy_(page, non_blocking=True)  # RACE a
    del page
    fresh = torch.full((SIZE,), 2.0, device="cuda")  # RACE a

    torch.cuda.synchronize()
    return fresh


if __name__ == "__main__":
    main()
