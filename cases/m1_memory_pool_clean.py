"""A workspace of a memory pool is dropped after its last read, and the pool hands it out again.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: torch notes, CUDA semantics (memory pools)
twin: m1_memory_pool_race
why: the default stream waits for the reader before the block goes back to its pool.
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
        torch.abs(workspace, out=norms)
    torch.cuda.current_stream().wait_stream(reader_stream)
    del workspace
    with torch.cuda.use_mem_pool(pool):
        next_workspace = torch.full((SIZE,), 1.0, device="cuda")
    torch.cuda.synchronize()
    return next_workspace


if __name__ == "__main__":
    main()
