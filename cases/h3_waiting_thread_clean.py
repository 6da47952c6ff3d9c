"""A worker waits for the copy, and the reader joins the worker.

rule: H3, T1
kind: R08-D2H-HOST-READ
verdict: clean
source: own
twin: h3_waiting_thread_race
why: join hands the worker's order over.
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
        host.copy_(source, non_blocking=True)
    worker = threading.Thread(target=copy_stream.synchronize)
    worker.start()
    worker.join()
    print(float(host[0]))
    worker.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
