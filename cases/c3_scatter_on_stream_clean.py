"""A batch is scattered on a copy stream, which the default one waits for.

rule: C3, E2
kind: R01-PROD-CONS
verdict: clean
source: torch.nn.parallel, Scatter
twin: c3_scatter_on_stream_race
why: the default stream waits for the stream that the copy is made on.
"""

import torch
import torch.cuda.comm as comm

SIZE = 1 << 18


def main() -> None:
    batch = torch.ones(SIZE).pin_memory()
    result = torch.empty(SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    (part,) = comm.scatter(batch, [0], streams=[copy_stream])
    part.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(copy_stream)
    torch.mul(part, 2.0, out=result)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
