"""A thread on the device's default stream reads what the default stream of a green context writes.

rule: S1, D1, E2
kind: R01-PROD-CONS
verdict: race
only: cuda
source: CUDA driver API, green contexts (the default stream of a context)
twin: d1_green_context_clean
why: a green context has a default stream of its own: the two default streams are not ordered (RAW).
"""

import threading

import torch
from torch.cuda.green_contexts import GreenContext

SIZE = 1 << 18


def report(scores: torch.Tensor, doubled: torch.Tensor, written: torch.cuda.Event) -> None:
    torch.mul(scores, 2.0, out=doubled)  # RACE a


def main() -> None:
    scores = torch.zeros(SIZE, device="cuda")
    doubled = torch.empty(SIZE, device="cuda")
    part = GreenContext.create(num_sms=16, device_id=0)
    written = torch.cuda.Event()
    torch.cuda.synchronize()

    part.set_context()
    scores.add_(1.0)  # RACE a
    written.record()
    worker = threading.Thread(target=report, args=(scores, doubled, written))
    worker.start()
    worker.join()
    part.pop_context()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
