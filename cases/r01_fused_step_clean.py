"""Weights are used after a fused Adam step on a side stream.

rule: E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r01_fused_step_race
why: the default stream waits for the optimizer's stream.
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
        optimizer.step()
    torch.cuda.current_stream().wait_stream(update_stream)
    with torch.no_grad():
        torch.mm(inputs, weight.detach(), out=output)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
