"""Pages are cleared before the event behind their eviction is polled, with torch's device-generic names.

rule: E4, S3
kind: R02-SLOT-WAR
verdict: race
source: CUDA Runtime API, cudaEventQuery
twin: e4_generic_event_clean
why: the default stream clears pages while the evict stream may still read them.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    pages = torch.ones(SIZE, device="cuda")
    evicted = torch.empty(SIZE, device="cuda")
    evict_stream = torch.Stream("cuda")
    done = torch.Event("cuda")
    torch.accelerator.synchronize()

    with evict_stream:
        evicted.copy_(pages)  # RACE a
        done.record()
    pages.zero_()  # RACE a
    while not done.query():
        pass

    torch.accelerator.synchronize()


if __name__ == "__main__":
    main()
