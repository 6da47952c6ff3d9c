"""A compiled function runs on a side stream, and the default stream waits for its result.

rule: S1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r14_compiled_function_race
only: cuda
why: the default stream waits for the side stream before it reads the result.
"""

import torch

SIZE = 1 << 16


@torch.compile
def activate(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + bias) * 2.0


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(SIZE, device="cuda")
    bias = torch.randn(SIZE, device="cuda")
    side = torch.cuda.Stream()
    activate(x, bias)
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        y = activate(x, bias)
    torch.cuda.current_stream().wait_stream(side)
    total = y.sum()

    torch.cuda.synchronize()
    print(total.item())


if __name__ == "__main__":
    main()
