"""A batch is scattered on a copy stream and used by the default one at once.

rule: C3, E2
kind: R01-PROD-CONS
verdict: race
source: torch.nn.parallel, Scatter
twin: c3_scatter_on_stream_clean
why: the copy is made on the stream given for the device, and nothing orders the use after it.
"""

import torch
import torch.cuda.comm as comm

SIZE = 1 << 18


def main() -> None:
    batch = torch.ones(SIZE).pin_memory()
    result = torch.empty(SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    (part,) = comm.scatter(batch, [0], streams=[copy_stream])  # RACE a
    part.record_stream(torch.cuda.current_stream())
    torch.mul(part, 2.0, out=result)  # RACE a
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
