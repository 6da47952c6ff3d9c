"""CuPy uploads into a tensor on a stream of its own, and torch reads it behind that.

rule: C3, E2
kind: R12-INTEROP
verdict: clean
source: CuPy reference, ndarray.set and cupyx.empty_pinned
twin: c3_cupy_upload_race
only: cuda
why: the host waits for CuPy's stream before torch reads.
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

    view.set(staging, stream=uploads)
    uploads.synchronize()
    torch.mul(batch, 2.0, out=doubled)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
