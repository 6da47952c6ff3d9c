"""Two threads use the per-thread default stream and take it for one stream.

rule: D2, T1
kind: R17-STREAM-IDENTITY
verdict: race
source: CUDA Runtime API, stream synchronization behavior
twin: d2_one_per_thread_clean
why: handle 2 names the caller's own stream, so the worker's fill and the read are unordered.
"""

import threading

import torch

SIZE = 1 << 18
PER_THREAD_HANDLE = 2


def fill(table: torch.Tensor) -> None:
    with torch.cuda.stream(torch.cuda.ExternalStream(PER_THREAD_HANDLE)):
        table.fill_(2.0)  # RACE a


def main() -> None:
    table = torch.zeros(SIZE, device="cuda")
    scaled = torch.empty(SIZE, device="cuda")
    torch.cuda.synchronize()

    worker = threading.Thread(target=fill, args=(table,))
    worker.start()
    worker.join()
    with torch.cuda.stream(torch.cuda.ExternalStream(PER_THREAD_HANDLE)):
        torch.mul(table, 0.5, out=scaled)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
