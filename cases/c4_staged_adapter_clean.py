"""The default stream waits for the stream that uploads a pageable adapter.

rule: C4, C1
kind: R10-PAGEABLE-LEGACY
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c4_staged_adapter_race
why: the wait orders the matrix product after the transfer.
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
        adapter.copy_(host_adapter, non_blocking=True)
    torch.cuda.current_stream().wait_stream(swap_stream)
    torch.mm(hidden, adapter.t(), out=low_rank)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
