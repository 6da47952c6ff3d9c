"""A gradient scaler steps on a stream that did not wait for the backward pass.

rule: A4, E2
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: r06_scaler_elsewhere_clean
why: step() unscales the gradient that backward writes (RAW), and writes the weight.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(SIZE, device="cuda"))
    inputs = torch.randn(SIZE, device="cuda")
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    update_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    scaler.scale((weight * inputs).sum()).backward()  # RACE a
    with torch.cuda.stream(update_stream):
        scaler.step(optimizer)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
