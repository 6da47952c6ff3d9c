"""A prefetcher class forgets the wait in its second method.

rule: E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_module_prefetcher_clean
why: the batch is used while its upload runs (RAW).
"""

from __future__ import annotations

import torch

SIZE = 1 << 18


class Prefetcher:
    def __init__(self, loader: list[torch.Tensor], slots: list[torch.Tensor]) -> None:
        self.loader, self.slots = iter(loader), iter(slots)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self) -> None:
        self.batch = next(self.slots, None)
        if self.batch is not None:
            with torch.cuda.stream(self.stream):
                self.batch.copy_(next(self.loader), non_blocking=True)  # RACE a

    def next(self) -> torch.Tensor | None:
        batch = self.batch
        self.preload()
        return batch


def main() -> None:
    host = [torch.ones(SIZE).pin_memory() for _ in range(3)]
    slots = [torch.zeros(SIZE, device="cuda") for _ in range(3)]
    outputs = torch.zeros(3, SIZE, device="cuda")
    torch.cuda.synchronize()

    prefetcher = Prefetcher(host, slots)
    step, batch = 0, prefetcher.next()
    while batch is not None:
        torch.mul(batch, 2.0, out=outputs[step])  # RACE a
        step, batch = step + 1, prefetcher.next()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
