"""CuPy works on a non-blocking stream of its own, which the default stream does not wait for.

rule: D1
kind: R12-INTEROP
verdict: race
source: CuPy reference, cupy.cuda.Stream (non_blocking)
twin: d1_cupy_blocking_stream_clean
only: cuda
why: the default stream reads what CuPy still writes, and does not wait for non-blocking streams.
"""

import cupy
import torch

SIZE = 1 << 18


def main() -> None:
    counts = torch.ones(SIZE, device="cuda")
    total = torch.zeros((), device="cuda")
    stream = cupy.cuda.Stream(non_blocking=True)
    view = cupy.asarray(counts)
    torch.cuda.synchronize()

    with stream:
        view += 1  # RACE a
    torch.sum(counts, dim=0, out=total)  # RACE a

    torch.cuda.synchronize()
    print(total.item() > 0)


if __name__ == "__main__":
    main()
