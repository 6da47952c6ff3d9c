"""The host waits for a table before the backward pass whose hook reads it.

rule: T2, H1, S3
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: torch notes, CUDA semantics; autograd mechanics
twin: t2_table_before_backward_race
why: the calling thread comes before the engine's threads, so the hook's work is behind the fill.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    table = torch.ones(SIZE, device="cuda")
    table_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    def rescale(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * table

    hidden = weight * inputs
    hidden.register_hook(rescale)
    loss = hidden.sum()
    with torch.cuda.stream(table_stream):
        table.fill_(0.5)
    table_stream.synchronize()
    loss.backward()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
