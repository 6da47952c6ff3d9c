"""The row of an array that is being downloaded is read instead of the other one.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: race
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_row_of_array_clean
why: rows[1] is read, which the second download still writes.
"""

import torch

SIZE = 1 << 14


def main() -> float:
    scores = torch.ones(2, SIZE, device="cuda")
    landing = torch.zeros(2, SIZE, pin_memory=True)
    rows = landing.numpy()
    download_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(download_stream):
        landing[0].copy_(scores[0], non_blocking=True)
    download_stream.synchronize()
    with torch.cuda.stream(download_stream):
        landing[1].copy_(scores[1], non_blocking=True)  # RACE a
    first = rows[1, :8].max() + rows[1, 3]  # RACE a

    torch.cuda.synchronize()
    return float(first)


if __name__ == "__main__":
    main()
