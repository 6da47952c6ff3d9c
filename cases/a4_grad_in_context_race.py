"""A gradient is taken inside a side context and used outside.

rule: A4
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: a4_grad_in_context_clean
why: grad() joins side, its caller's stream; the default stream does not wait (RAW).
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
        (gradient,) = torch.autograd.grad(loss, weight)  # RACE a
    torch.mul(gradient, 0.5, out=scaled)  # RACE a
    torch.cuda.synchronize()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
