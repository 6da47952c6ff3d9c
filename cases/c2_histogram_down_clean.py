"""A histogram is plotted after its blocking download.

rule: C2, C7
kind: R08-D2H-HOST-READ
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c2_histogram_down_race
why: the blocking form returns when the bytes are there.
"""

import torch

BINS = 4096


def main() -> None:
    torch.manual_seed(0)
    counts = torch.rand(BINS, device="cuda")
    bins = torch.zeros(BINS, pin_memory=True)
    plot_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(plot_stream):
        bins.copy_(counts)
    highest = max(bins.tolist())

    torch.cuda.synchronize()
    print(highest <= 1.0)


if __name__ == "__main__":
    main()
