"""A numba kernel writes a tensor on a stream that the reader waits for.

rule: E2
kind: R12-INTEROP
verdict: clean
source: numba documentation, CUDA array interface
twin: r12_numba_kernel_possible
only: cuda
why: the default stream waits for the side stream, which wrote x.
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

    double[SIZE // 256, 256, cuda.external_stream(side.cuda_stream)](x)
    torch.cuda.current_stream().wait_stream(side)
    torch.neg(x, out=y)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
