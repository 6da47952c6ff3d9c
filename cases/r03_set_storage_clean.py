"""set_ drops the old storage after the side stream was waited for.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: own
twin: r03_set_storage_latent
why: the owner waits for the read.
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
        torch.cumsum(weight, 0, out=sums)
    torch.cuda.current_stream().wait_stream(side)
    weight.set_(other)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
