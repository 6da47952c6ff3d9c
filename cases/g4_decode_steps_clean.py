"""One graph of a decode step is replayed on two streams.

rule: G4, G2
kind: R13-GRAPH-REPLAY
verdict: clean
source: CUDA Driver API, cuGraphLaunch
twin: g4_decode_steps_race
why: launches of one executable graph follow one another, whatever their streams.
"""

import torch

SIZE = 1 << 18


def capture(positions: torch.Tensor) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        positions.add_(1.0)
    return graph


def main() -> None:
    positions = torch.zeros(SIZE, device="cuda")
    even_stream, odd_stream = torch.cuda.Stream(), torch.cuda.Stream()
    positions.add_(1.0)
    even_step = capture(positions)
    odd_step = even_step
    torch.cuda.synchronize()

    with torch.cuda.stream(even_stream):
        even_step.replay()
    with torch.cuda.stream(odd_stream):
        odd_step.replay()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
