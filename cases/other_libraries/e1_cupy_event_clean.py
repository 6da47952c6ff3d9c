"""CuPy records its event behind the kernel that the reader waits for.

rule: E1, E2
kind: R01-PROD-CONS
verdict: clean
source: CuPy reference, cupy.cuda.Event
twin: e1_cupy_event_race
only: cuda
why: torch's stream waits for an event that covers CuPy's kernel.
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
        cupy.negative(view, out=view)
        ready.record()
    cupy.cuda.ExternalStream(reader.cuda_stream).wait_event(ready)
    with torch.cuda.stream(reader):
        torch.abs(weights, out=result)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
