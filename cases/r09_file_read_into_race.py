"""The next page of a file is read into pinned memory while the last one is uploaded.

rule: C3, H1
kind: R09-H2D-SRC-WRITE
verdict: race
source: torch notes, CUDA semantics (pinned memory buffers)
twin: r09_file_read_into_clean
why: the file writes bytes that the upload reads, without a wait in between; this shows in the bytes, so the line is that of the array.
"""

import io

import torch

SIZE = 1 << 14


def main() -> None:
    file = io.BytesIO(bytes(range(1, 255)) * 1024)
    staging = torch.zeros(SIZE, dtype=torch.uint8, pin_memory=True)
    page = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
    content = staging.numpy()  # RACE a
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    file.readinto(content)
    with torch.cuda.stream(upload_stream):
        page.copy_(staging, non_blocking=True)  # RACE a
    file.readinto(content)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
