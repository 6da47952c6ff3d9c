"""A loss scale changes on the default stream before a backward pass of a side-stream forward.

rule: A1, A2, A3
kind: R06-AUTOGRAD-STREAM
verdict: race
source: torch notes, stream semantics of backward passes
twin: a1_loss_scale_clean
why: the custom backward runs on its forward stream and reads scale with no order to the fill.
"""

from typing import Any

import torch

SIZE = 1 << 17


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        ctx.scale = scale
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.scale, None  # RACE a


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    scale = torch.ones(SIZE, device="cuda")
    caller_stream = torch.cuda.Stream()
    forward_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(forward_stream):
        hidden = weight * inputs
        scaled = ScaleGradient.apply(hidden, scale)
        loss = scaled.sum()
    torch.cuda.synchronize()

    scale.fill_(0.5)  # RACE a
    with torch.cuda.stream(caller_stream):
        loss.backward()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
