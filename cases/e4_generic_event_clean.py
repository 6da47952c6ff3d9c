"""Pages are cleared after the event behind their eviction is polled, with torch's device-generic names.

rule: E4, S3
kind: R02-SLOT-WAR
verdict: clean
source: CUDA Runtime API, cudaEventQuery
twin: e4_generic_event_race
why: the query answered done, so the clearing is enqueued after the eviction.
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
        evicted.copy_(pages)
        done.record()
    while not done.query():
        pass
    pages.zero_()

    torch.accelerator.synchronize()


if __name__ == "__main__":
    main()
