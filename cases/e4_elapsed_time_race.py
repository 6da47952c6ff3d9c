"""Pages are cleared before the time of their eviction is known.

rule: E4, S3
kind: R02-SLOT-WAR
verdict: race
source: CUDA Runtime API, cudaEventElapsedTime
twin: e4_elapsed_time_clean
why: the default stream clears pages while the evict stream may still read them; the time is asked for too late.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    pages = torch.ones(SIZE, device="cuda")
    evicted = torch.empty(SIZE, device="cuda")
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    evict_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(evict_stream):
        begin.record()
        evicted.copy_(pages)  # RACE a
        end.record()
    pages.zero_()  # RACE a
    milliseconds = None
    while milliseconds is None:
        try:
            milliseconds = begin.elapsed_time(end)
        except RuntimeError:  # the events have not been reached yet
            pass

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
