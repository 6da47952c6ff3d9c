"""Work of a pool stream is expected to hold back the legacy default stream.

rule: D1, D2
kind: R10-PAGEABLE-LEGACY
verdict: race
source: CUDA Runtime API, stream synchronization behavior
twin: d1_blocking_stream_clean
why: framework pool streams are non-blocking, so the default stream reads features too early.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    features = torch.randn(SIZE, device="cuda")
    shifted = torch.empty(SIZE, device="cuda")
    worker_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(worker_stream):
        features.mul_(2.0)  # RACE a
    torch.add(features, 1.0, out=shifted)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
