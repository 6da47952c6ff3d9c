"""Pages are cleared after polling a stream other than the one that evicts them.

rule: E4, S3
kind: R02-SLOT-WAR
verdict: race
source: CUDA Runtime API, cudaStreamQuery
twin: e4_stream_poll_clean
why: the evict stream still reads pages when the default stream clears them (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    pages = torch.ones(SIZE, device="cuda")
    evicted = torch.empty(SIZE, device="cuda")
    evict_stream = torch.cuda.Stream()
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(evict_stream):
        evicted.copy_(pages)  # RACE a
    while not upload_stream.query():
        pass
    pages.zero_()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
