"""A matrix is filled by rows of its transpose and by columns that overlap in one column.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own; byte ranges of strided views
twin: r02_transposed_tiles_clean
why: row 127 of the transpose is column 127 of the matrix, which both streams write (WAW).
"""

import torch

SIDE = 256


def main() -> None:
    matrix = torch.zeros(SIDE, SIDE, device="cuda")
    left_stream, right_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    left = matrix.t()[: SIDE // 2]
    right = matrix[:, SIDE // 2 - 1 :]
    with torch.cuda.stream(left_stream):
        left.fill_(1.0)  # RACE a
    with torch.cuda.stream(right_stream):
        right.fill_(2.0)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
