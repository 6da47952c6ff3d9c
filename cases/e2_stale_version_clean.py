"""The wait for refreshed weights is issued after the second refresh was recorded.

rule: E2
kind: R05-EVENT-MISUSE
verdict: clean
source: CUDA Runtime API, cudaStreamWaitEvent
twin: e2_stale_version_race
why: the wait takes the latest version of the event, which covers both refreshes.
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
    with torch.cuda.stream(refresh_stream):
        weights.mul_(0.5)
        refreshed.record()
    compute_stream.wait_event(refreshed)
    torch.mul(activations, weights, out=output)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
