"""A batch in a reference cycle is collected by another thread than the one that used it.

rule: T1, M1, H1
kind: R03-ALLOC-REUSE
verdict: race
source: own
twin: t1_last_reference_clean
why: zeros gets the batch's memory while side may still read it (WAR).
"""

import gc
import threading

import torch

ROWS = 1 << 16


def work(total: torch.Tensor, finished: list[bool]) -> None:
    batch = torch.ones(ROWS, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total.copy_(batch.sum())  # RACE a
    ring = [batch]
    ring.append(ring)
    finished.append(True)


def main() -> None:
    total = torch.zeros((), device="cuda")
    finished: list[bool] = []
    torch.cuda.synchronize()
    gc.collect()
    gc.disable()

    worker = threading.Thread(target=work, args=(total, finished))
    worker.start()
    while not finished:
        pass
    gc.collect()
    fresh = torch.zeros(ROWS, device="cuda")  # RACE a

    worker.join()
    torch.cuda.synchronize()
    del fresh


if __name__ == "__main__":
    main()
