"""Work of a blocking stream holds back the legacy default stream.

rule: D1, D2
kind: R10-PAGEABLE-LEGACY
verdict: clean
source: CUDA Runtime API, stream synchronization behavior
twin: d1_blocking_stream_race
why: handle 2 is the thread's own default stream, a blocking one; the legacy stream waits for it.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    features = torch.randn(SIZE, device="cuda")
    shifted = torch.empty(SIZE, device="cuda")
    worker_stream = torch.cuda.ExternalStream(2)
    torch.cuda.synchronize()

    with torch.cuda.stream(worker_stream):
        features.mul_(2.0)
    torch.add(features, 1.0, out=shifted)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
