"""Weights are used while a fused Adam step on a side stream writes them.

rule: E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_fused_step_clean
why: the optimizer steps on its stream and the forward pass on the default stream reads weight unordered (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(512, 512, device="cuda"))
    inputs = torch.randn(64, 512, device="cuda")
    output = torch.empty(64, 512, device="cuda")
    optimizer = torch.optim.Adam([weight], lr=0.1, fused=True)
    update_stream = torch.cuda.Stream()
    weight.grad = torch.ones_like(weight)
    torch.cuda.synchronize()

    with torch.cuda.stream(update_stream):
        optimizer.step()  # RACE a
    with torch.no_grad():
        torch.mm(inputs, weight.detach(), out=output)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
