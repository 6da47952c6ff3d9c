"""An autotuned Triton kernel reads, its trials included, what its stream has waited for.

rule: S1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: s1_triton_autotuned_race
only: cuda
why: the default stream waits for the side stream before the trials.
"""

import torch
import triton
import triton.language as tl

SIZE = 1 << 16


@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def square(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, x * x)
    else:
        inside = offsets < n
        x = tl.load(x_ptr + offsets, mask=inside)
        tl.store(out_ptr + offsets, x * x, mask=inside)


def main() -> None:
    torch.manual_seed(0)
    x = torch.zeros(SIZE, device="cuda")
    out = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        x.normal_()
    torch.cuda.current_stream().wait_stream(side)
    square[lambda meta: (triton.cdiv(SIZE, meta["BLOCK"]),)](x, out, SIZE)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
