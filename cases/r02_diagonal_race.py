"""A covariance matrix gets its jitter on the diagonal while its whole first row is scaled.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own; byte ranges of strided views
twin: r02_diagonal_clean
why: element (0, 0) lies on the diagonal and in the row, and the two updates are unordered.
"""

import torch

SIDE = 512


def main() -> None:
    torch.manual_seed(0)
    covariance = torch.randn(SIDE, SIDE, device="cuda")
    jitter_stream, scale_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(jitter_stream):
        covariance.diagonal().add_(1e-3)  # RACE a
    with torch.cuda.stream(scale_stream):
        covariance[0].mul_(0.5)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
