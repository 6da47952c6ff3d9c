"""Two Triton kernels on two streams fill the two halves of one buffer.

rule: S1
kind: R02-SLOT-WAR
verdict: clean
source: own
twin: r02_triton_halves_race
only: cuda
why: both are given the whole buffer, and the bytes that they touch have none in common.
"""

import torch
import triton
import triton.language as tl

SIZE = 1 << 16
HALF = SIZE // 2


@triton.jit
def fill(out_ptr, first, n, value, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + first + offsets, value, mask=offsets < n)


def main() -> None:
    out = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        fill[(triton.cdiv(HALF, 1024),)](out, 0, HALF, 1.0, BLOCK=1024)
    fill[(triton.cdiv(HALF, 1024),)](out, HALF, HALF, 2.0, BLOCK=1024)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
