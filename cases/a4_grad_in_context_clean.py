"""A gradient is taken on the caller's stream and used there.

rule: A4
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: own
twin: a4_grad_in_context_race
why: grad() joins the default stream.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    scaled = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        loss = (weight * inputs).sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    torch.mul(gradient, 0.5, out=scaled)
    torch.cuda.synchronize()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
