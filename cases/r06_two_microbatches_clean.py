"""Micro-batches run on two streams, each behind the last.

rule: A1, A4
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: own
twin: r06_two_microbatches_race
why: each stream waits for the one before.
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
        stream.wait_stream(previous)
        with torch.cuda.stream(stream):
            (weight * part).sum().backward()
        previous = stream

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
