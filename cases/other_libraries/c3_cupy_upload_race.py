"""CuPy uploads into a tensor on a stream of its own, and torch reads it at once.

rule: C3, E2
kind: R12-INTEROP
verdict: race
source: CuPy reference, ndarray.set and cupyx.empty_pinned
twin: c3_cupy_upload_clean
only: cuda
why: the copy from pinned memory is in the order of CuPy's stream alone.
"""

import cupy
import cupyx
import numpy
import torch

SIZE = 1 << 18


def main() -> None:
    batch = torch.zeros(SIZE, device="cuda")
    doubled = torch.empty_like(batch)
    uploads = cupy.cuda.Stream(non_blocking=True)
    view = cupy.asarray(batch)
    staging = cupyx.empty_pinned((SIZE,), dtype=numpy.float32)
    staging[:] = 1.0
    torch.cuda.synchronize()

    view.set(staging, stream=uploads)  # RACE a
    torch.mul(batch, 2.0, out=doubled)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
