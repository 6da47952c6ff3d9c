"""set_ drops the old storage while a side stream reads it.

rule: M1
kind: R03-ALLOC-REUSE
verdict: latent
source: own
twin: r03_set_storage_clean
why: the last reference to the old block goes with set_, and the side stream's read is not ordered before its owner.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda")
    other = torch.randn(SIZE, device="cuda")
    sums = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        torch.cumsum(weight, 0, out=sums)  # LATENT a
    weight.set_(other)  # LATENT a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
