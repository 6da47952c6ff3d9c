"""Memory is short when a workspace is asked for, so torch gives a dropped one back first.

rule: M3, M1
kind: R03-ALLOC-REUSE
verdict: clean
source: PyTorch's caching allocator; CUDA Runtime API, cudaFree
twin: m3_short_of_memory_latent
why: giving the block back to the driver waits for the device, the reader included.
"""

import torch

SIZE = 12 << 20


def main() -> torch.Tensor:
    norms = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    refill_stream = torch.cuda.Stream()
    workspace = torch.full((SIZE,), -1.0, device="cuda")
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.abs(workspace, out=norms)
    del workspace
    with torch.cuda.stream(refill_stream):
        next_workspace = torch.full((SIZE,), 1.0, device="cuda")

    torch.cuda.synchronize()
    return next_workspace


if __name__ == "__main__":
    main()
