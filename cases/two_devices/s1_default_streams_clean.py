"""The second device's default stream waits for an event of the first one's.

rule: S1, E2, C3
kind: R15-MULTI-DEVICE
verdict: clean
source: torch notes, CUDA semantics (streams per device)
twin: s1_default_streams_race
devices: 2
why: the event orders the upload after the download.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    boundary = torch.ones(SIZE, device="cuda:0")
    received = torch.zeros(SIZE, device="cuda:1")
    page = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)

    page.copy_(boundary, non_blocking=True)
    downloaded = torch.cuda.current_stream(0).record_event()
    torch.cuda.current_stream(1).wait_event(downloaded)
    received.copy_(page, non_blocking=True)

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    main()
