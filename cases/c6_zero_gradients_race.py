"""Gradients are cleared on a side stream and accumulated on the default stream.

rule: C6
kind: R02-SLOT-WAR
verdict: race
source: CUDA Runtime API, cudaMemsetAsync
twin: c6_zero_gradients_clean
why: a fill is asynchronous to the host, so it may run after the addition (WAW).
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
        gradients.zero_()  # RACE a
    gradients.add_(contribution)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
