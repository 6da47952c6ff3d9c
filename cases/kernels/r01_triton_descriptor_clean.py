"""A Triton kernel reads through a tensor descriptor what its stream has waited for.

rule: S1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: r01_triton_descriptor_race
only: cuda
why: the default stream waits for the side stream before the launch.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS, TILE = 256, 128, 64


@triton.jit
def double(source, target, TILE: tl.constexpr):
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    target.store([row, column], source.load([row, column]) * 2.0)


def main() -> None:
    source = torch.zeros(ROWS, COLUMNS, device="cuda")
    target = torch.zeros(ROWS, COLUMNS, device="cuda")
    tiles = [TensorDescriptor.from_tensor(tensor, [TILE, TILE]) for tensor in (source, target)]
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        source.fill_(1.0)
    torch.cuda.current_stream().wait_stream(side)
    double[(ROWS // TILE, COLUMNS // TILE)](*tiles, TILE)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
