"""An eager result is dropped while a reader stream copies it, and its block is filled again.

rule: G3, M1
kind: R03-ALLOC-REUSE
verdict: race
source: torch notes, CUDA graphs (memory management)
twin: g3_output_dropped_clean
why: the block returns to the default stream's pool and is written as padding during the copy.
"""

import torch

SIZE = 1 << 20


def main() -> torch.Tensor:
    inputs = torch.ones(SIZE, device="cuda")
    snapshot = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    result = inputs * 2.0
    reader_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(reader_stream):
        snapshot.copy_(result)  # RACE a
    del result
    padding = torch.full((SIZE,), -1.0, device="cuda")  # RACE a

    torch.cuda.synchronize()
    return padding


if __name__ == "__main__":
    main()
