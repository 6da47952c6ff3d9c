"""A staging page is archived on the host before its download is known to be done.

rule: C5, C3
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c5_archive_page_clean
why: the host to host copy reads page at once, while the swap stream may still write it.
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
        page.copy_(activations, non_blocking=True)  # RACE a
        downloaded.record()
    archive[2].copy_(page)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
