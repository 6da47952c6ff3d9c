"""Micro-batches run on two streams and accumulate one gradient.

rule: A1, A4
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: r06_two_microbatches_clean
why: each backward pass adds to weight.grad on its own stream, unordered (WAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(2, SIZE, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    previous = torch.cuda.current_stream()
    torch.cuda.synchronize()

    for stream, part in zip(streams, inputs):
        with torch.cuda.stream(stream):
            (weight * part).sum().backward()  # RACE a
        previous = stream

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
