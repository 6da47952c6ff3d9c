"""Gradients of two towers are added after waiting for the stream that called backward.

rule: A4, A3
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: torch notes, stream semantics of backward passes
twin: a4_two_towers_race
why: at the end of the pass the caller's stream comes after the gradients of both towers.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    left_weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    right_weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    combined = torch.empty(SIZE, device="cuda")
    left_stream, right_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(left_stream):
        left = left_weight * inputs
        left_loss = left.sum()
    with torch.cuda.stream(right_stream):
        right = right_weight * inputs
        right_loss = right.sum()
    torch.cuda.synchronize()

    with torch.cuda.stream(left_stream):
        torch.autograd.backward([left_loss, right_loss])
    torch.cuda.current_stream().wait_stream(left_stream)
    torch.add(left_weight.grad, right_weight.grad, out=combined)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
