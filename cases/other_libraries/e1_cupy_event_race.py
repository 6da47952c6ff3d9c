"""CuPy records its event before the kernel that the reader waits for.

rule: E1, E2
kind: R04-EDGE-WRONG
verdict: race
source: CuPy reference, cupy.cuda.Event
twin: e1_cupy_event_clean
only: cuda
why: the event does not cover the kernel, so torch's stream reads before CuPy has written.
"""

import cupy
import torch

SIZE = 1 << 18


def main() -> None:
    weights = torch.ones(SIZE, device="cuda")
    result = torch.empty_like(weights)
    reader = torch.cuda.Stream()
    writer = cupy.cuda.Stream(non_blocking=True)
    ready = cupy.cuda.Event()
    view = cupy.asarray(weights)
    torch.cuda.synchronize()

    with writer:
        ready.record()
        cupy.negative(view, out=view)  # RACE a
    cupy.cuda.ExternalStream(reader.cuda_stream).wait_event(ready)
    with torch.cuda.stream(reader):
        torch.abs(weights, out=result)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
