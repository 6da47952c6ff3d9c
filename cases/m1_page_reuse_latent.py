"""A cache page is dropped during its swap-out.

rule: M1
kind: R03-ALLOC-REUSE
verdict: latent
source: torch notes, CUDA semantics (memory management)
twin: m1_page_reuse_clean
why: the default stream, which owns the block, is not ordered after the read when page goes.
"""

import torch

SIZE = 1 << 20


def main() -> None:
    host_page = torch.empty(SIZE, pin_memory=True)
    swap_stream = torch.cuda.Stream()
    page = torch.full((SIZE,), 1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        host_page.copy_(page, non_blocking=True)  # LATENT a
    del page  # LATENT a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
