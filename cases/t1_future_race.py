"""A shard is used once the future of its loader is done, and the loader did not synchronize.

rule: T1, H1, S3
kind: R01-PROD-CONS
verdict: race
source: Python documentation, concurrent.futures (Future.result)
twin: t1_future_clean
why: the future hands over the loader's host order only, and its stream may still write.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

SIZE = 1 << 18


def load(shard: torch.Tensor, value: float) -> torch.Tensor:
    load_stream = torch.cuda.Stream()
    with torch.cuda.stream(load_stream):
        shard.fill_(value)  # RACE a
    return shard


def main() -> None:
    shards = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
    total = torch.zeros(SIZE, device="cuda")
    torch.cuda.synchronize()

    with ThreadPoolExecutor(max_workers=1) as pool:
        futures = [pool.submit(load, shard, 1.0 + i) for i, shard in enumerate(shards)]
        for future in futures:
            total.add_(future.result())  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
