"""CuPy scales a tensor on a stream of torch's that has waited for its producer.

rule: E2, S1
kind: R12-INTEROP
verdict: clean
source: CuPy user guide, interoperability (ExternalStream)
twin: e2_cupy_shared_stream_race
only: cuda
why: side waits for the default stream before CuPy reads on it.
"""

import cupy
import torch

SIZE = 1 << 18


def main() -> None:
    scores = torch.ones(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    scores.mul_(3.0)
    side.wait_stream(torch.cuda.current_stream())
    with cupy.cuda.ExternalStream(side.cuda_stream):
        view = cupy.asarray(scores)
        roots = cupy.sqrt(view)

    torch.cuda.synchronize()
    print(float(roots[0]) > 0)


if __name__ == "__main__":
    main()
