"""The cache is emptied between dropping a workspace and making the next one.

rule: M3, M1
kind: R03-ALLOC-REUSE
verdict: clean
source: CUDA Runtime API, cudaFree
twin: m3_empty_cache_race
why: handing memory back to the driver waits for the device, the last read included.
"""

import torch

SIZE = 3 << 20


def main() -> torch.Tensor:
    norms = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    workspace = torch.full((SIZE,), -1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.abs(workspace, out=norms)  # MAYBE m
    del workspace  # MAYBE m
    torch.cuda.empty_cache()
    next_workspace = torch.full((SIZE,), 1.0, device="cuda")

    torch.cuda.synchronize()
    return next_workspace


if __name__ == "__main__":
    main()
