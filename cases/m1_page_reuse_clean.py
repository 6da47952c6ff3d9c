"""A cache page is dropped once its owner stream has waited for the swap-out.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: torch notes, CUDA semantics (memory management)
twin: m1_page_reuse_race, m1_page_reuse_latent
why: whoever gets the block next on the default stream comes after the swap-out.
"""

import torch

SIZE = 1 << 20


def main() -> torch.Tensor:
    host_page = torch.empty(SIZE, pin_memory=True)
    swap_stream = torch.cuda.Stream()
    page = torch.full((SIZE,), 1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        host_page.copy_(page, non_blocking=True)
    torch.cuda.current_stream().wait_stream(swap_stream)
    del page
    fresh = torch.full((SIZE,), 2.0, device="cuda")

    torch.cuda.synchronize()
    return fresh


if __name__ == "__main__":
    main()
