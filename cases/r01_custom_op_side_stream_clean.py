"""A custom operator computes on a stream of its own, and joins it before it returns.

rule: S1, E2
kind: R01-PROD-CONS
verdict: clean
source: PyTorch documentation, torch.library.custom_op
twin: r01_custom_op_side_stream_race
why: the caller's stream waits for the operator's own stream inside of the operator.
"""

import torch

SIZE = 1 << 16
side: torch.cuda.Stream


@torch.library.custom_op("cases::squares", mutates_args=())
def squares(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.mul(x, x, out=out)
    torch.cuda.current_stream().wait_stream(side)
    return out


def main() -> None:
    global side
    torch.manual_seed(0)
    x = torch.randn(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    y = squares(x)
    total = y.sum()

    torch.cuda.synchronize()
    print(total.item())


if __name__ == "__main__":
    main()
