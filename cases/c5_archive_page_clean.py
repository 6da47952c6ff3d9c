"""A staging page is archived on the host after its download is known to be done.

rule: C5, C3
kind: R08-D2H-HOST-READ
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c5_archive_page_race
why: the host waits for the event behind the download and then copies.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    torch.manual_seed(0)
    activations = torch.randn(SIZE, device="cuda")
    page = torch.zeros(SIZE, pin_memory=True)
    archive = torch.zeros(4, SIZE)
    swap_stream = torch.cuda.Stream()
    downloaded = torch.cuda.Event()
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        page.copy_(activations, non_blocking=True)
        downloaded.record()
    downloaded.synchronize()
    archive[2].copy_(page)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
