"""Two Triton kernels on two streams share their input, and one counts into what the other reads.

rule: S1, E2
kind: R02-SLOT-WAR
verdict: race
source: own
twin: r02_triton_accumulate_clean
only: cuda
why: count adds to histogram by atomics while the other stream reads it (WAR).
"""

import torch
import triton
import triton.language as tl

SIZE = 1 << 14
BINS = 256


@triton.jit
def count(values_ptr, histogram_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    values = tl.load(values_ptr + offsets, mask=inside, other=0)
    tl.atomic_add(histogram_ptr + values, 1, mask=inside)


@triton.jit
def normalize(values_ptr, histogram_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    values = tl.load(values_ptr + offsets, mask=inside, other=0)
    counted = tl.load(histogram_ptr + values, mask=inside, other=1)
    tl.store(out_ptr + offsets, values.to(tl.float32) / (counted + 1), mask=inside)


def main() -> None:
    torch.manual_seed(0)
    values = torch.randint(0, BINS, (SIZE,), device="cuda", dtype=torch.int32)
    histogram = torch.zeros(BINS, device="cuda", dtype=torch.int32)
    previous = torch.ones(BINS, device="cuda", dtype=torch.int32)
    out = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    blocks = (triton.cdiv(SIZE, 1024),)
    with torch.cuda.stream(side):
        normalize[blocks](values, histogram, out, SIZE, BLOCK=1024)  # RACE a
    count[blocks](values, histogram, SIZE, BLOCK=1024)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
