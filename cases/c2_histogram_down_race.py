"""A histogram is plotted while its non-blocking download may be in flight.

rule: C2, C7
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c2_histogram_down_clean
why: the copy into pinned memory is asynchronous, and the host reads bins without waiting.
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
        bins.copy_(counts, non_blocking=True)  # RACE a
    highest = max(bins.tolist())  # RACE a

    torch.cuda.synchronize()
    print(highest <= 1.0)


if __name__ == "__main__":
    main()
