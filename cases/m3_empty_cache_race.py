"""A workspace is dropped during its last read, and its block is filled again.

rule: M3, M1
kind: R03-ALLOC-REUSE
verdict: race
source: CUDA Runtime API, cudaFree
twin: m3_empty_cache_clean
why: the reader stream reads the block while the default stream writes it as the next workspace.
"""

import torch

SIZE = 3 << 20


def main() -> torch.Tensor:
    norms = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    workspace = torch.full((SIZE,), -1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.abs(workspace, out=norms)  # RACE a
    del workspace
    next_workspace = torch.full((SIZE,), 1.0, device="cuda")  # RACE a

    torch.cuda.synchronize()
    return next_workspace


if __name__ == "__main__":
    main()
