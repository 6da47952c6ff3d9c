"""A device to device snapshot without non_blocking is taken for complete.

rule: C5
kind: R02-SLOT-WAR
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c5_snapshot_on_device_clean
why: copies within the device never block the host, so the update may overtake the snapshot.
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
        snapshot.copy_(weights, non_blocking=False)  # RACE a
    weights.mul_(0.99)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
