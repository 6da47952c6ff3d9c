"""A Triton kernel on a side stream fills a buffer that the default stream reads at once.

rule: S1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_triton_producer_clean
only: cuda
why: the kernel writes out on the side stream, and nothing orders the sum behind it (RAW).
"""

import torch
import triton
import triton.language as tl

SIZE = 1 << 16


@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) * factor, mask=inside)


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(SIZE, device="cuda")
    out = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        scale[(triton.cdiv(SIZE, 1024),)](x, out, SIZE, 2.0, BLOCK=1024)  # RACE a
    total = out.sum()  # RACE a

    torch.cuda.synchronize()
    print(total.item())


if __name__ == "__main__":
    main()
