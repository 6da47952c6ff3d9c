"""The tag byte of packed records is written on one stream and their payload is read on another.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_packed_bytes_race
why: tag and payload are different bytes of the same records.
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
        fields[:, 3].fill_(7)
    payload.copy_(fields[:, :3])

    torch.cuda.synchronize()
    print(payload.numel(), copied.numel())


if __name__ == "__main__":
    main()
