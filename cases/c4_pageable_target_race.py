"""Token ids are read from a pinned target right after a non-blocking download.

rule: C4, C3
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c4_pageable_target_clean
why: a copy into pinned memory is asynchronous, so the host may read the old ids.
"""

import torch

BATCH = 512


def main() -> None:
    token_ids = torch.arange(BATCH, device="cuda")
    host_ids = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
    torch.cuda.synchronize()

    token_ids.add_(1)
    host_ids.copy_(token_ids, non_blocking=True)  # RACE a
    text = " ".join(str(i) for i in host_ids.tolist())  # RACE a

    torch.cuda.synchronize()
    print(len(text) > 0)


if __name__ == "__main__":
    main()
