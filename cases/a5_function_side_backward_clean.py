"""A custom function's backward switches streams and joins.

rule: A5, A1
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: own
twin: a5_function_side_backward_race
why: the node's stream waits for side.
"""

from typing import Any

import torch

SIZE = 1 << 18


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
        ctx.stream = stream
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        here = torch.cuda.current_stream()
        ctx.stream.wait_stream(here)
        with torch.cuda.stream(ctx.stream):
            result = gradient * 2.0
        gradient.record_stream(ctx.stream)
        here.wait_stream(ctx.stream)
        return result, None


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    loss = (Scale.apply(weight, side) * 3.0).sum()
    loss.backward()
    total = weight.grad.sum()
    torch.cuda.synchronize()
    del total

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
