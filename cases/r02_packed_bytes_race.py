"""The tag byte of packed records is written on one stream and whole records are read on another.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own; byte ranges of strided views
twin: r02_packed_bytes_clean
why: each record is four bytes, the tag is the last of them, and the read covers all four.
"""

import torch

RECORDS = 1 << 14


def main() -> None:
    records = torch.ones(RECORDS, dtype=torch.int32, device="cuda")
    payload = torch.empty(RECORDS, 3, dtype=torch.uint8, device="cuda")
    copied = torch.empty(RECORDS, dtype=torch.int32, device="cuda")
    tag_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    fields = records.view(torch.uint8).view(RECORDS, 4)
    with torch.cuda.stream(tag_stream):
        fields[:, 3].fill_(7)  # RACE a
    copied.copy_(records)  # RACE a

    torch.cuda.synchronize()
    print(payload.numel(), copied.numel())


if __name__ == "__main__":
    main()
