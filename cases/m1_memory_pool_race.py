"""A workspace of a memory pool is dropped during its last read, and the pool hands it out again.

rule: M1
kind: R03-ALLOC-REUSE
verdict: race
source: torch notes, CUDA semantics (memory pools)
twin: m1_memory_pool_clean
why: the reader stream reads the block while the default stream writes it as the pool's next workspace.
"""

import torch

SIZE = 1 << 20


def main() -> torch.Tensor:
    pool = torch.cuda.MemPool()
    norms = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        workspace = torch.full((SIZE,), -1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.abs(workspace, out=norms)  # RACE a
    del workspace
    with torch.cuda.use_mem_pool(pool):
        next_workspace = torch.full((SIZE,), 1.0, device="cuda")  # RACE a
    torch.cuda.synchronize()
    return next_workspace


if __name__ == "__main__":
    main()
