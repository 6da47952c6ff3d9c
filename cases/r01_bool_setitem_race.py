"""Assigning a number through a boolean mask is taken for a synchronisation.

rule: H1, C7
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_bool_setitem_clean
why: x[mask] = 0.0 is a masked fill and the host does not wait for it; nothing orders it before the sum (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    values = torch.randn(SIZE, device="cuda")
    mask = torch.rand(SIZE, device="cuda") > 0.5
    total = torch.empty((), device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        values[mask] = 0.0  # RACE a
    torch.sum(values, dim=0, out=total)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
