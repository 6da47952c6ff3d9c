"""Pages are cleared once the time of their eviction is known.

rule: E4, S3
kind: R02-SLOT-WAR
verdict: clean
source: CUDA Runtime API, cudaEventElapsedTime
twin: e4_elapsed_time_race
why: a time that is to be had says that both events were reached, so the clearing is enqueued after the eviction.
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
        evicted.copy_(pages)
        end.record()
    milliseconds = None
    while milliseconds is None:
        try:
            milliseconds = begin.elapsed_time(end)
        except RuntimeError:  # the events have not been reached yet
            pass
    pages.zero_()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
