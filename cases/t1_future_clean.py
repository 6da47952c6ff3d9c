"""A shard is used once the future of its loader is done, and the loader did synchronize.

rule: T1, H1, S3
kind: R01-PROD-CONS
verdict: clean
source: Python documentation, concurrent.futures (Future.result)
twin: t1_future_race
why: the loader came after its stream, and the result hands that order to the main thread.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

SIZE = 1 << 18


def load(shard: torch.Tensor, value: float) -> torch.Tensor:
    load_stream = torch.cuda.Stream()
    with torch.cuda.stream(load_stream):
        shard.fill_(value)
    load_stream.synchronize()
    return shard


def main() -> None:
    shards = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
    total = torch.zeros(SIZE, device="cuda")
    torch.cuda.synchronize()

    with ThreadPoolExecutor(max_workers=1) as pool:
        futures = [pool.submit(load, shard, 1.0 + i) for i, shard in enumerate(shards)]
        for future in futures:
            total.add_(future.result())

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
