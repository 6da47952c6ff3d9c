"""A worker waits for the copy, and nobody waits for the worker.

rule: H3, T1
kind: R08-D2H-HOST-READ
verdict: race
source: own
twin: h3_waiting_thread_clean
why: the main thread reads host without an order with the worker (RAW).
"""

import threading

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    source = torch.randn(SIZE, device="cuda")
    host = torch.zeros(SIZE).pin_memory()
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(copy_stream):
        host.copy_(source, non_blocking=True)  # RACE a
    worker = threading.Thread(target=copy_stream.synchronize)
    worker.start()
    print(float(host[0]))  # RACE a
    worker.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
