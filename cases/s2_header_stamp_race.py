"""A request header is stamped after the call that uploads it.

rule: S2, S3
kind: R09-H2D-SRC-WRITE
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: s2_header_stamp_clean
why: the upload reads header when it runs, and the host writes header without waiting for it.
"""

import torch

FIELDS = 64


def main() -> None:
    header = torch.zeros(FIELDS, pin_memory=True)
    device_header = torch.zeros(FIELDS, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(copy_stream):
        device_header.copy_(header, non_blocking=True)  # RACE a
    header[0] = 7.0  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
