"""The update of the weights waits for the stream that takes their snapshot.

rule: C5
kind: R02-SLOT-WAR
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c5_snapshot_on_device_race
why: the wait orders the in-place update after the snapshot's read.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(SIZE, device="cuda")
    snapshot = torch.empty(SIZE, device="cuda")
    snapshot_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(snapshot_stream):
        snapshot.copy_(weights, non_blocking=False)
    torch.cuda.current_stream().wait_stream(snapshot_stream)
    weights.mul_(0.99)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
