"""The stream that assigns through a boolean mask is waited for.

rule: H1, C7
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r01_bool_setitem_race
why: the default stream waits for the masked fill.
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
        values[mask] = 0.0
    torch.cuda.current_stream().wait_stream(side)
    torch.sum(values, dim=0, out=total)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
