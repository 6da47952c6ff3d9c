"""One thread uses its per-thread default stream twice.

rule: D2, T1
kind: R17-STREAM-IDENTITY
verdict: clean
source: CUDA Runtime API, stream synchronization behavior
twin: d2_one_per_thread_race
why: both operations run on the same per-thread stream in order.
"""

import threading

import torch

SIZE = 1 << 18
PER_THREAD_HANDLE = 2


def fill(table: torch.Tensor) -> None:
    with torch.cuda.stream(torch.cuda.ExternalStream(PER_THREAD_HANDLE)):
        table.fill_(2.0)


def main() -> None:
    table = torch.zeros(SIZE, device="cuda")
    scaled = torch.empty(SIZE, device="cuda")
    torch.cuda.synchronize()

    worker = threading.Thread(target=fill, args=(table,))
    worker.run()
    with torch.cuda.stream(torch.cuda.ExternalStream(PER_THREAD_HANDLE)):
        torch.mul(table, 0.5, out=scaled)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
