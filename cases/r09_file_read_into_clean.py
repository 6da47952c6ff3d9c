"""The next page of a file is read into pinned memory after the last one was uploaded.

rule: C3, H1
kind: R09-H2D-SRC-WRITE
verdict: clean
source: torch notes, CUDA semantics (pinned memory buffers)
twin: r09_file_read_into_race
why: the host has waited for the upload before it reads the next page.
"""

import io

import torch

SIZE = 1 << 14


def main() -> None:
    file = io.BytesIO(bytes(range(1, 255)) * 1024)
    staging = torch.zeros(SIZE, dtype=torch.uint8, pin_memory=True)
    page = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
    content = staging.numpy()
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    file.readinto(content)
    with torch.cuda.stream(upload_stream):
        page.copy_(staging, non_blocking=True)
    upload_stream.synchronize()
    file.readinto(content)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
