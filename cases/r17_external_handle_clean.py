"""A library wraps the handle that it was given.

rule: S1
kind: R17-STREAM-IDENTITY
verdict: clean
source: torch API, torch.cuda.ExternalStream
twin: r17_external_handle_race
why: two stream objects with one native handle are one stream, which keeps its order.
"""

import torch

SIZE = 1 << 18


def transform(table: torch.Tensor, result: torch.Tensor, handle: int) -> None:
    stream = torch.cuda.ExternalStream(handle)
    with torch.cuda.stream(stream):
        torch.sqrt(table, out=result)


def main() -> None:
    table = torch.zeros(SIZE, device="cuda")
    result = torch.empty(SIZE, device="cuda")
    table_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(table_stream):
        table.fill_(9.0)
        transform(table, result, table_stream.cuda_stream)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
