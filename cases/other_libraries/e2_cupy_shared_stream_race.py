"""CuPy scales a tensor on a stream of torch's that never waited for its producer.

rule: E2, S1
kind: R12-INTEROP
verdict: race
source: CuPy user guide, interoperability (ExternalStream)
twin: e2_cupy_shared_stream_clean
only: cuda
why: __cuda_array_interface__ orders nothing, and side reads before the default stream has written.
"""

import cupy
import torch

SIZE = 1 << 18


def main() -> None:
    scores = torch.ones(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    scores.mul_(3.0)  # RACE a
    with cupy.cuda.ExternalStream(side.cuda_stream):
        view = cupy.asarray(scores)
        roots = cupy.sqrt(view)  # RACE a

    torch.cuda.synchronize()
    print(float(roots[0]) > 0)


if __name__ == "__main__":
    main()
