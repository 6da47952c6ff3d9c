"""A vector-Jacobian product is asked for on another stream than the one that made the vector.

rule: A2
kind: R06-AUTOGRAD-STREAM
verdict: race
source: torch notes, stream semantics of backward passes
twin: a2_cotangent_clean
why: the vector counts as produced on the default stream, so the backward kernel may read it early.
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
        cotangent.fill_(0.5)  # RACE a
    (product,) = torch.autograd.grad(score, sample, cotangent)  # RACE a

    torch.cuda.synchronize()
    print(product.shape == sample.shape)


if __name__ == "__main__":
    main()
