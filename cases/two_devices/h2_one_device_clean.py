"""The host synchronizes the device whose download it reads.

rule: H2, C3
kind: R15-MULTI-DEVICE
verdict: clean
source: CUDA Runtime API, cudaDeviceSynchronize
twin: h2_one_device_race
devices: 2
why: the device synchronize covers all streams of the second device.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    losses = torch.ones(SIZE, device="cuda:1")
    host_losses = torch.zeros(SIZE, pin_memory=True)
    copy_stream = torch.cuda.Stream("cuda:1")
    torch.cuda.synchronize(1)

    with torch.cuda.stream(copy_stream):
        host_losses.copy_(losses, non_blocking=True)
    torch.cuda.synchronize(1)
    total = float(host_losses.sum())

    torch.cuda.synchronize(1)
    print(total >= 0.0)


if __name__ == "__main__":
    main()
