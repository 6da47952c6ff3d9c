"""The row of an array that has arrived is read while the other one is being downloaded.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_row_of_array_race
why: rows[0] has arrived, and shares no byte with what the second download writes.
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
        landing[1].copy_(scores[1], non_blocking=True)
    first = rows[0, :8].max() + rows[0, 3]

    torch.cuda.synchronize()
    return float(first)


if __name__ == "__main__":
    main()
