"""A layer is marked for the upload stream although the compute stream reads it last.

rule: M2
kind: R03-ALLOC-REUSE
verdict: race
source: torch API, Tensor.record_stream
twin: m2_mark_early_clean
why: the mark guards against the wrong stream, so the block is refilled during the read.
"""

import torch

SIZE = 1 << 20


def main() -> torch.Tensor:
    torch.manual_seed(0)
    activations = torch.randn(SIZE, device="cuda")
    output = torch.empty(SIZE, device="cuda")
    upload_stream, reader_stream = torch.cuda.Stream(), torch.cuda.Stream()
    layer = torch.full((SIZE,), 0.5, device="cuda")
    torch.cuda.synchronize()

    layer.record_stream(upload_stream)
    with torch.cuda.stream(reader_stream):
        torch.mul(activations, layer, out=output)  # RACE a
    del layer
    next_layer = torch.full((SIZE,), 0.25, device="cuda")  # RACE a

    torch.cuda.synchronize()
    return next_layer


if __name__ == "__main__":
    main()
