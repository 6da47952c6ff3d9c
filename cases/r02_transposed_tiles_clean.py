"""A matrix is filled by rows of its transpose and by the columns beside them.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_transposed_tiles_race
why: the first 128 rows of the transpose are columns 0 to 127, the other stream starts at 128.
"""

import torch

SIDE = 256


def main() -> None:
    matrix = torch.zeros(SIDE, SIDE, device="cuda")
    left_stream, right_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    left = matrix.t()[: SIDE // 2]
    right = matrix[:, SIDE // 2 :]
    with torch.cuda.stream(left_stream):
        left.fill_(1.0)
    with torch.cuda.stream(right_stream):
        right.fill_(2.0)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
