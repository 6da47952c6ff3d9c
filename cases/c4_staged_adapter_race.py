"""An adapter uploaded from pageable memory is taken for present once the call returns.

rule: C4, C1
kind: R10-PAGEABLE-LEGACY
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c4_staged_adapter_clean
why: the source is staged, but the transfer is ordered on the swap stream only.
"""

import torch

RANK, WIDTH = 16, 1024


def main() -> None:
    torch.manual_seed(0)
    host_adapter = torch.randn(RANK, WIDTH)
    adapter = torch.zeros(RANK, WIDTH, device="cuda")
    hidden = torch.randn(64, WIDTH, device="cuda")
    low_rank = torch.empty(64, RANK, device="cuda")
    swap_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(swap_stream):
        adapter.copy_(host_adapter, non_blocking=True)  # RACE a
    torch.mm(hidden, adapter.t(), out=low_rank)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
