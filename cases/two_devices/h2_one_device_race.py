"""The host synchronizes the first device and reads what the second one downloads.

rule: H2, C3
kind: R15-MULTI-DEVICE
verdict: race
source: CUDA Runtime API, cudaDeviceSynchronize
twin: h2_one_device_clean
devices: 2
why: a device synchronize covers that device only; the other download may be in flight.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    losses = torch.ones(SIZE, device="cuda:1")
    host_losses = torch.zeros(SIZE, pin_memory=True)
    copy_stream = torch.cuda.Stream("cuda:1")
    torch.cuda.synchronize(1)

    with torch.cuda.stream(copy_stream):
        host_losses.copy_(losses, non_blocking=True)  # RACE a
    torch.cuda.synchronize(0)
    total = float(host_losses.sum())  # RACE a

    torch.cuda.synchronize(1)
    print(total >= 0.0)


if __name__ == "__main__":
    main()
