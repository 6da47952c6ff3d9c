"""A ring slot is given back through a semaphore before its upload is done.

rule: T1, E3
kind: R09-H2D-SRC-WRITE
verdict: race
source: Python documentation, threading (Semaphore)
twin: t1_semaphore_clean
why: the collator takes the slot and refills it while the upload may still read it.
"""

import threading

import torch

SIZE = 1 << 15


def collate(slot: torch.Tensor, free: threading.Semaphore) -> None:
    free.acquire()
    torch.neg(slot, out=slot)  # RACE a


def main() -> None:
    slot = torch.ones(SIZE, pin_memory=True)
    batch = torch.zeros(SIZE, device="cuda")
    free = threading.Semaphore(0)
    uploaded = torch.cuda.Event()
    torch.cuda.synchronize()

    collator = threading.Thread(target=collate, args=(slot, free))
    collator.start()
    batch.copy_(slot, non_blocking=True)  # RACE a
    uploaded.record()
    free.release()
    collator.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
