"""A numba kernel writes a tensor on another stream than the one that reads it.

rule: E2
kind: R12-INTEROP
verdict: possible
source: numba documentation, CUDA array interface
twin: r12_numba_kernel_clean
only: cuda
why: the side stream writes x while the default stream reads it.
"""

import numpy
import torch

if not hasattr(numpy, "row_stack"):  # gone from NumPy, and numba-cuda still asks for it
    numpy.row_stack = numpy.vstack

from numba import cuda

SIZE = 1 << 16


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


def main() -> None:
    x = torch.ones(SIZE, device="cuda")
    y = torch.empty_like(x)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    double[SIZE // 256, 256, cuda.external_stream(side.cuda_stream)](x)  # POSSIBLE a
    torch.neg(x, out=y)  # POSSIBLE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
