"""Weights are broadcast to a replica while a side stream of their device still loads them.

rule: N1, E2
kind: R07-COLL-INFLIGHT
verdict: race
source: torch.nn.parallel, replicate
twin: n1_broadcast_replica_clean
devices: 2
why: the broadcast runs on the devices' current streams, and the loader is not one of them.
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
        weights.fill_(2.0)  # RACE a
    _, replica = comm.broadcast(weights, [0, 1])  # RACE a
    replica.mul_(2.0)

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    main()
