"""Two graphs captured into one pool are replayed side by side.

rule: G3, G4
kind: R13-GRAPH-REPLAY
verdict: race
source: torch notes, CUDA graphs (sharing memory across captures)
twin: g3_shared_pool_clean
why: the second graph got the block of the first one's scratch, and their replays are unordered.
"""

import torch

SIZE = 1 << 18


def capture(
    inputs: torch.Tensor, output: torch.Tensor, pool: tuple[int, int]
) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        scratch = inputs * 2.0
        torch.add(scratch, 1.0, out=output)
        del scratch
    return graph


def main() -> None:
    inputs = [torch.ones(SIZE, device="cuda") for _ in range(2)]
    outputs = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    pools = [torch.cuda.graph_pool_handle() for _ in range(2)]
    torch.add(inputs[0] * 2.0, 1.0, out=outputs[0])
    first_graph = capture(inputs[0], outputs[0], pools[0])
    second_graph = capture(inputs[1], outputs[1], pools[0])
    torch.cuda.synchronize()

    with torch.cuda.stream(streams[0]):
        first_graph.replay()  # RACE a
    with torch.cuda.stream(streams[1]):
        second_graph.replay()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
