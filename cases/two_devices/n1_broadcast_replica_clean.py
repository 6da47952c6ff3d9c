"""Weights are broadcast to a replica once their device's stream has waited for the loader.

rule: N1, E2
kind: R07-COLL-INFLIGHT
verdict: clean
source: torch.nn.parallel, replicate
twin: n1_broadcast_replica_race
devices: 2
why: the first device's current stream waits for the loader before it sends.
"""

import torch
import torch.cuda.comm as comm

SIZE = 1 << 18


def main() -> None:
    weights = torch.zeros(SIZE, device="cuda:0")
    loader = torch.cuda.Stream("cuda:0")
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)

    with torch.cuda.stream(loader):
        weights.fill_(2.0)
    torch.cuda.current_stream(0).wait_stream(loader)
    _, replica = comm.broadcast(weights, [0, 1])
    replica.mul_(2.0)

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    main()
