"""Two graphs share a pool and are replayed on two streams.

rule: G3, G4
kind: R13-GRAPH-REPLAY
verdict: race
source: own
twin: g3_pool_on_two_streams_clean
why: the second graph's temporaries lie where the first one's do (WAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    static = torch.ones(SIZE, device="cuda")
    outputs = torch.zeros(2, SIZE, device="cuda")
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first, stream=one):
        outputs[0].copy_((static + 1.0) * 2.0)
    with torch.cuda.graph(second, pool=first.pool(), stream=one):
        outputs[1].copy_((static + 2.0) * 3.0)
    torch.cuda.synchronize()

    with torch.cuda.stream(one):
        first.replay()  # RACE a
    with torch.cuda.stream(two):
        second.replay()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
