"""A request header is stamped before the call that uploads it.

rule: S2, S3
kind: R09-H2D-SRC-WRITE
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: s2_header_stamp_race
why: one host thread does both in order, and the upload comes after the call that enqueued it.
"""

import torch

FIELDS = 64


def main() -> None:
    header = torch.zeros(FIELDS, pin_memory=True)
    device_header = torch.zeros(FIELDS, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    header[0] = 7.0
    with torch.cuda.stream(copy_stream):
        device_header.copy_(header, non_blocking=True)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
