"""The lock on a staging page is released after the upload from it is synchronized.

rule: T1, H1
kind: R09-H2D-SRC-WRITE
verdict: clean
source: Python documentation, threading (Lock)
twin: t1_lock_race
why: the writer gets the lock and with it the order of the synchronize.
"""

import threading

import torch

SIZE = 1 << 16


def write(page: torch.Tensor, lock: threading.Lock) -> None:
    with lock:
        page.fill_(2.0)


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
            batch.copy_(page, non_blocking=True)
        upload_stream.synchronize()
    writer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
