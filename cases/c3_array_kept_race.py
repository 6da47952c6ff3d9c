"""One array over pinned memory serves all steps; each step reads it while the download runs.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: race
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_array_kept_clean
why: rows is read before the host has waited for the download of the same step.
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
            landing.copy_(scores, non_blocking=True)  # RACE a
        total += float(rows.mean())  # RACE a
        torch.cuda.current_stream().wait_stream(download_stream)
        scores.mul_(2)
        download_stream.synchronize()

    return total


if __name__ == "__main__":
    main()
