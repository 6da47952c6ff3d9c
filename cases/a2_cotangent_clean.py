"""A vector-Jacobian product is asked for on the stream that made the vector.

rule: A2
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: torch notes, stream semantics of backward passes
twin: a2_cotangent_race
why: the vector counts as produced on the side stream, and the engine orders its reader behind.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    sample = torch.randn(SIZE, device="cuda", requires_grad=True)
    scale = torch.randn(SIZE, device="cuda")
    cotangent = torch.zeros(SIZE, device="cuda")
    seed_stream = torch.cuda.Stream()
    score = sample * scale
    torch.cuda.synchronize()

    with torch.cuda.stream(seed_stream):
        cotangent.fill_(0.5)
        (product,) = torch.autograd.grad(score, sample, cotangent)

    torch.cuda.synchronize()
    print(product.shape == sample.shape)


if __name__ == "__main__":
    main()
