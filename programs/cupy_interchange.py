"""CuPy and torch on the same memory: DLPack, `__cuda_array_interface__` and a shared stream.

needs: cupy
device: cuda
"""

from __future__ import annotations

import cupy
import torch
from common import options, show


def main() -> None:
    """Hand an array back and forth for a few steps."""
    args = options(__doc__, steps=8)
    size = 1 << 10 if args.small else 1 << 20
    side = torch.cuda.Stream()
    x = torch.linspace(0, 1, size, device="cuda")
    sums = []
    for _ in range(args.steps):
        shared = cupy.from_dlpack(x)  # both on the legacy default stream
        y = torch.from_dlpack(cupy.sqrt(shared) + 0.5)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), cupy.cuda.ExternalStream(side.cuda_stream):
            z = torch.as_tensor(cupy.asarray(y) * cupy.float32(0.5), device="cuda")
            z.mul_(0.9)
            y.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        z.record_stream(torch.cuda.current_stream())
        x = x * 0.5 + z
        sums.append(x.double().sum().item())
    show("sum", sums)


if __name__ == "__main__":
    main()
