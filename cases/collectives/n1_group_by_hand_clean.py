"""Weights loaded on a side stream are broadcast by a group made by hand, from the same.

rule: N1
kind: R07-COLL-INFLIGHT
verdict: clean
source: own
twin: n1_group_by_hand_race
why: the broadcast comes after the stream that is current at the call, which loads the weights.
"""

import torch
import torch.distributed as dist

SIZE = 1 << 16


def main() -> None:
    group = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1)
    weights = torch.zeros(SIZE, device="cuda")
    loader = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(loader):
        weights.fill_(2.0)
        handle = group.broadcast(weights, 0)
    handle.wait()
    torch.cuda.synchronize()
    group.shutdown()


if __name__ == "__main__":
    main()
