"""Scores are summed through an array that shares pinned memory, before their download has ended.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: race
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_array_of_pinned_clean
why: rows begins in the middle of landing, which the download still writes.
"""

import torch

SIZE = 1 << 16


def main() -> float:
    scores = torch.ones(SIZE, device="cuda")
    landing = torch.zeros(SIZE + 8, pin_memory=True)
    rows = torch.from_numpy(landing.numpy()[8:])
    download_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(download_stream):
        landing[8:].copy_(scores, non_blocking=True)  # RACE a
    total = rows.sum()  # RACE a

    torch.cuda.synchronize()
    return total.item()


if __name__ == "__main__":
    main()
