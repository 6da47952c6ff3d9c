"""A Triton kernel updates weights in place while a side stream still reads them.

rule: S1, E2
kind: R02-SLOT-WAR
verdict: race
source: own
twin: r02_triton_in_place_clean
only: cuda
why: the side stream reads weights, the kernel rewrites them on the default stream (WAR).
"""

import torch
import triton
import triton.language as tl

SIZE = 1 << 16


@triton.jit
def step(weights_ptr, gradient_ptr, n, rate, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    weights = tl.load(weights_ptr + offsets, mask=inside)
    gradient = tl.load(gradient_ptr + offsets, mask=inside)
    tl.store(weights_ptr + offsets, weights - rate * gradient, mask=inside)


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(SIZE, device="cuda")
    gradient = torch.randn(SIZE, device="cuda")
    averaged = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        averaged.lerp_(weights, 0.1)  # RACE a
    step[(triton.cdiv(SIZE, 1024),)](weights, gradient, SIZE, 0.01, BLOCK=1024)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
