"""Weights are refreshed again after the wait for their event was issued.

rule: E2
kind: R05-EVENT-MISUSE
verdict: race
source: CUDA Runtime API, cudaStreamWaitEvent
twin: e2_stale_version_clean
why: the wait took the first version of the event, which does not cover the second refresh.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    activations = torch.randn(SIZE, device="cuda")
    weights = torch.zeros(SIZE, device="cuda")
    output = torch.empty(SIZE, device="cuda")
    compute_stream = torch.cuda.current_stream()
    refresh_stream = torch.cuda.Stream()
    refreshed = torch.cuda.Event()
    torch.cuda.synchronize()

    with torch.cuda.stream(refresh_stream):
        weights.fill_(1.0)
        refreshed.record()
    compute_stream.wait_event(refreshed)
    with torch.cuda.stream(refresh_stream):
        weights.mul_(0.5)  # RACE a
        refreshed.record()
    torch.mul(activations, weights, out=output)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
