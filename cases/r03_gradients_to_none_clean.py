"""Gradients are set to None behind the reduction.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: own
twin: r03_gradients_to_none_latent
why: the default stream waits for the reduction.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(SIZE, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    bucket = torch.empty(SIZE, device="cuda")
    reduce_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    weight.square().sum().backward()
    reduce_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(reduce_stream):
        bucket.copy_(weight.grad)
    torch.cuda.current_stream().wait_stream(reduce_stream)
    optimizer.zero_grad(set_to_none=True)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
