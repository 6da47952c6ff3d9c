"""Two graphs of the same decode step are replayed on two streams.

rule: G4, G2
kind: R13-GRAPH-REPLAY
verdict: race
source: CUDA Driver API, cuGraphLaunch
twin: g4_decode_steps_clean
why: launches of two graphs are unordered, and both advance the same positions.
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
    odd_step = capture(positions)
    torch.cuda.synchronize()

    with torch.cuda.stream(even_stream):
        even_step.replay()  # RACE a
    with torch.cuda.stream(odd_stream):
        odd_step.replay()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
