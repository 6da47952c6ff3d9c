"""A custom function's backward switches streams and does not come back with a wait.

rule: A5, A1
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: a5_function_side_backward_clean
why: the engine orders the node's own stream only; mul on side is read unordered (RAW).
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
            result = gradient * 2.0  # RACE a
        gradient.record_stream(ctx.stream)
        return result, None


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    loss = (Scale.apply(weight, side) * 3.0).sum()
    loss.backward()
    total = weight.grad.sum()  # RACE a
    torch.cuda.synchronize()
    del total

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
