"""The optimizer steps on a stream that did not wait for the backward pass.

rule: A4, E2
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: r06_step_elsewhere_clean
why: step() reads the gradient and writes the weight that backward uses (RAW); forward reads the weight (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(SIZE, device="cuda"))
    inputs = torch.randn(SIZE, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    update_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    loss = (weight * inputs).sum()  # RACE a
    loss.backward()  # RACE b
    with torch.cuda.stream(update_stream):
        optimizer.step()  # RACE a b

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
