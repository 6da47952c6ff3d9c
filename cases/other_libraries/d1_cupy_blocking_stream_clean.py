"""CuPy works on a stream of its own of the default sort, which the default stream waits for.

rule: D1
kind: R12-INTEROP
verdict: clean
source: CuPy reference, cupy.cuda.Stream (non_blocking)
twin: d1_cupy_blocking_stream_race
only: cuda
why: CuPy makes blocking streams, and the legacy default stream waits for all of their work.
"""

import cupy
import torch

SIZE = 1 << 18


def main() -> None:
    counts = torch.ones(SIZE, device="cuda")
    total = torch.zeros((), device="cuda")
    stream = cupy.cuda.Stream()
    view = cupy.asarray(counts)
    torch.cuda.synchronize()

    with stream:
        view += 1
    torch.sum(counts, dim=0, out=total)

    torch.cuda.synchronize()
    print(total.item() > 0)


if __name__ == "__main__":
    main()
