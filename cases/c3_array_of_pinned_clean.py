"""Scores are summed through an array that shares pinned memory, after their download.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_array_of_pinned_race
why: the host waits for the download.
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
        landing[8:].copy_(scores, non_blocking=True)
    download_stream.synchronize()
    total = rows.sum()

    torch.cuda.synchronize()
    return total.item()


if __name__ == "__main__":
    main()
