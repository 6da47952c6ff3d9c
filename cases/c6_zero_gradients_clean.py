"""Accumulation waits for the stream that clears the gradients.

rule: C6
kind: R02-SLOT-WAR
verdict: clean
source: CUDA Runtime API, cudaMemsetAsync
twin: c6_zero_gradients_race
why: the wait orders the addition after the fill.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    gradients = torch.randn(SIZE, device="cuda")
    contribution = torch.randn(SIZE, device="cuda")
    clear_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(clear_stream):
        gradients.zero_()
    torch.cuda.current_stream().wait_stream(clear_stream)
    gradients.add_(contribution)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
