"""The wrong layer is marked with all dispatch modes switched off, as sharding libraries do.

rule: M2
kind: R03-ALLOC-REUSE
verdict: race
source: torch.distributed.fsdp, _no_dispatch_record_stream
twin: m2_mark_without_modes_clean
only: cuda
why: the mark is on the output; the layer's block goes to the next one while the reader still reads.
"""

import torch

SIZE = 1 << 20


def mark(tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
    modes_off = torch._C._DisableTorchDispatch()
    tensor.record_stream(stream)
    del modes_off


def main() -> torch.Tensor:
    torch.manual_seed(0)
    activations = torch.randn(SIZE, device="cuda")
    output = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    layer = torch.full((SIZE,), 0.5, device="cuda")
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.mul(activations, layer, out=output)  # RACE a
    mark(output, reader_stream)
    del layer
    next_layer = torch.full((SIZE,), 0.25, device="cuda")  # RACE a

    torch.cuda.synchronize()
    return next_layer


if __name__ == "__main__":
    main()
