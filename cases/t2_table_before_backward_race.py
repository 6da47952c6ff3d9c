"""A gradient hook reads a table that a side stream fills before the backward pass.

rule: T2, H1, S3
kind: R06-AUTOGRAD-STREAM
verdict: race
source: torch notes, CUDA semantics; autograd mechanics
twin: t2_table_before_backward_clean
why: nothing orders the fill before the hook's multiplication on the default stream.
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
        return gradient * table  # RACE a

    hidden = weight * inputs
    hidden.register_hook(rescale)
    loss = hidden.sum()
    with torch.cuda.stream(table_stream):
        table.fill_(0.5)  # RACE a
    loss.backward()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
