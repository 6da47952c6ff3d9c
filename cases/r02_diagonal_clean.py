"""A covariance matrix gets its jitter on the diagonal while the rest of its first row is scaled.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_diagonal_race
why: the row without its first element shares no byte with the diagonal.
"""

import torch

SIDE = 512


def main() -> None:
    torch.manual_seed(0)
    covariance = torch.randn(SIDE, SIDE, device="cuda")
    jitter_stream, scale_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(jitter_stream):
        covariance.diagonal().add_(1e-3)
    with torch.cuda.stream(scale_stream):
        covariance[0, 1:].mul_(0.5)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
