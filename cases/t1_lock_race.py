"""The lock on a staging page is released before the upload from it is synchronized.

rule: T1, H1
kind: R09-H2D-SRC-WRITE
verdict: race
source: Python documentation, threading (Lock)
twin: t1_lock_clean
why: the writer takes the lock and fills page while the upload may still read it.
"""

import threading

import torch

SIZE = 1 << 16


def write(page: torch.Tensor, lock: threading.Lock) -> None:
    with lock:
        page.fill_(2.0)  # RACE a


def main() -> None:
    page = torch.ones(SIZE, pin_memory=True)
    batch = torch.zeros(SIZE, device="cuda")
    lock = threading.Lock()
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    writer = threading.Thread(target=write, args=(page, lock))
    with lock:
        writer.start()
        with torch.cuda.stream(upload_stream):
            batch.copy_(page, non_blocking=True)  # RACE a
    upload_stream.synchronize()
    writer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
