"""One array over pinned memory serves all steps; each step reads it after the download.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_array_kept_race
why: the array is there while downloads run, and is read when the host has waited for them.
"""

import torch

SIZE = 1 << 14
STEPS = 3


def main() -> float:
    scores = torch.ones(SIZE, device="cuda")
    landing = torch.zeros(SIZE, pin_memory=True)
    rows = landing.numpy()
    download_stream = torch.cuda.Stream()
    total = 0.0
    torch.cuda.synchronize()

    for _ in range(STEPS):
        download_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(download_stream):
            landing.copy_(scores, non_blocking=True)
        download_stream.synchronize()
        torch.cuda.current_stream().wait_stream(download_stream)
        scores.mul_(2)
        total += float(rows.mean())

    return total


if __name__ == "__main__":
    main()
