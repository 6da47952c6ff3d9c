"""A library works on a stream of its own instead of the handle that it was given.

rule: S1
kind: R17-STREAM-IDENTITY
verdict: race
source: torch API, torch.cuda.ExternalStream
twin: r17_external_handle_clean
why: the two streams are different ones, and nothing orders the fill before the read.
"""

import torch

SIZE = 1 << 18


def transform(table: torch.Tensor, result: torch.Tensor, handle: int) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.sqrt(table, out=result)  # RACE a


def main() -> None:
    table = torch.zeros(SIZE, device="cuda")
    result = torch.empty(SIZE, device="cuda")
    table_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(table_stream):
        table.fill_(9.0)  # RACE a
        transform(table, result, table_stream.cuda_stream)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
