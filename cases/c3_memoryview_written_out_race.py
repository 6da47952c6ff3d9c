"""A memoryview of pinned memory is written to a file while its download runs.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: race
source: torch notes, CUDA semantics (pinned memory buffers)
twin: c3_memoryview_written_out_clean
why: the file reads the bytes of content, which the download still writes.
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
        landing.copy_(weights, non_blocking=True)  # RACE a
    file.write(content)  # RACE a
    save_stream.synchronize()

    torch.cuda.synchronize()
    return file.tell()


if __name__ == "__main__":
    main()
