"""Token ids are read from a pageable target right after a non-blocking download.

rule: C4, C3
kind: R08-D2H-HOST-READ
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c4_pageable_target_race
why: a copy from the device into pageable memory blocks the host whatever the flag says.
"""

import torch

BATCH = 512


def main() -> None:
    token_ids = torch.arange(BATCH, device="cuda")
    host_ids = torch.zeros(BATCH, dtype=torch.int64)
    torch.cuda.synchronize()

    token_ids.add_(1)
    host_ids.copy_(token_ids, non_blocking=True)
    text = " ".join(str(i) for i in host_ids.tolist())

    torch.cuda.synchronize()
    print(len(text) > 0)


if __name__ == "__main__":
    main()
