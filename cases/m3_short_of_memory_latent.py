"""A workspace is dropped during its last read; there is enough memory for the next one.

rule: M3, M1
kind: R03-ALLOC-REUSE
verdict: latent
source: PyTorch's caching allocator; CUDA Runtime API, cudaFree
twin: m3_short_of_memory_clean
why: this run happens not to reuse the block that reader_stream reads; the next one may.
"""

import torch

SIZE = 12 << 20


def main() -> torch.Tensor:
    norms = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    refill_stream = torch.cuda.Stream()
    workspace = torch.full((SIZE,), -1.0, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.abs(workspace, out=norms)  # LATENT a
    del workspace  # LATENT a
    with torch.cuda.stream(refill_stream):
        next_workspace = torch.full((SIZE,), 1.0, device="cuda")

    torch.cuda.synchronize()
    return next_workspace


if __name__ == "__main__":
    main()
