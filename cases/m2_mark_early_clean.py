"""A layer is marked for its reader before the reader's last use is enqueued.

rule: M2
kind: R03-ALLOC-REUSE
verdict: clean
source: torch API, Tensor.record_stream
twin: m2_mark_early_race
why: the mark covers all work that the stream had enqueued when the layer was dropped.
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

    layer.record_stream(reader_stream)
    with torch.cuda.stream(reader_stream):
        torch.mul(activations, layer, out=output)
    del layer
    next_layer = torch.full((SIZE,), 0.25, device="cuda")

    torch.cuda.synchronize()
    return next_layer


if __name__ == "__main__":
    main()
