"""A memoryview of pinned memory is written to a file after its download.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_memoryview_written_out_race
why: the memoryview is older than the download, and its bytes are read when the host has waited.
"""

import io

import torch

SIZE = 1 << 14


def main() -> int:
    weights = torch.ones(SIZE, device="cuda")
    landing = torch.zeros(SIZE, pin_memory=True)
    content = memoryview(landing.numpy())
    save_stream = torch.cuda.Stream()
    file = io.BytesIO()
    torch.cuda.synchronize()

    with torch.cuda.stream(save_stream):
        landing.copy_(weights, non_blocking=True)
    save_stream.synchronize()
    file.write(content)

    torch.cuda.synchronize()
    return file.tell()


if __name__ == "__main__":
    main()
