"""The optimizer steps on a stream behind the backward pass.

rule: A4, E2
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: own
twin: r06_step_elsewhere_race
why: the update stream waits for the default stream.
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

    loss = (weight * inputs).sum()
    loss.backward()
    update_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(update_stream):
        optimizer.step()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
