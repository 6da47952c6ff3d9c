"""An autotuned Triton kernel reads what another stream produces, its trials included.

rule: S1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: s1_triton_autotuned_clean
only: cuda
why: the kernel and its trials run on the default stream, which never waits for the side stream.
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
        x.normal_()  # RACE a
    square[lambda meta: (triton.cdiv(SIZE, meta["BLOCK"]),)](x, out, SIZE)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
