"""A prefetching loader is left before its end, and dropped after its last work was waited for.

rule: M1, E2
kind: R03-ALLOC-REUSE
verdict: clean
source: timm 1.0.31, PrefetchLoader (its mean and std, after a break)
twin: m1_abandoned_prefetch_latent
why: the default stream, which owns mean, waits for the batch that it does not take, too.
"""

from collections.abc import Iterator

import torch

SIZE = 1 << 16


class Prefetcher:
    def __init__(self, batches: list[torch.Tensor]) -> None:
        self.batches = batches
        self.mean = torch.full((SIZE,), 0.5, device="cuda")
        self.side = torch.cuda.Stream()

    def __iter__(self) -> Iterator[torch.Tensor]:
        ready = None
        for batch in self.batches:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                upcoming = batch.to("cuda", non_blocking=True)
                upcoming.sub_(self.mean)
            if ready is not None:
                yield ready
            torch.cuda.current_stream().wait_stream(self.side)
            ready = upcoming
        if ready is not None:
            yield ready


def main() -> None:
    torch.manual_seed(0)
    loader = Prefetcher([torch.randn(SIZE).pin_memory() for _ in range(3)])
    total = torch.zeros((), device="cuda")
    for batch in loader:
        total += batch.sum()
        break
    torch.cuda.current_stream().wait_stream(loader.side)
    del loader

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
