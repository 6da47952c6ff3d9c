"""Pages are cleared after polling the stream that evicts them.

rule: E4, S3
kind: R02-SLOT-WAR
verdict: clean
source: CUDA Runtime API, cudaStreamQuery
twin: e4_stream_poll_race
why: the query answered done, so the clearing is enqueued after the eviction.
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
        evicted.copy_(pages)
    while not evict_stream.query():
        pass
    pages.zero_()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
