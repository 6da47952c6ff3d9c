"""Gradients are set to None while the reduction stream copies them.

rule: M1
kind: R03-ALLOC-REUSE
verdict: latent
source: own
twin: r03_gradients_to_none_clean
why: zero_grad drops the gradient's block before the copy is ordered.
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
        bucket.copy_(weight.grad)  # LATENT a
    optimizer.zero_grad(set_to_none=True)  # LATENT a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
