"""A graph's result is dropped while a reader stream copies it, and other memory is filled.

rule: G3, M1
kind: R03-ALLOC-REUSE
verdict: clean
source: torch notes, CUDA graphs (memory management)
twin: g3_output_dropped_race
why: the graph is alive, so the block stays in its private pool and padding lies elsewhere.
"""

import torch

SIZE = 1 << 20


def main() -> torch.Tensor:
    inputs = torch.ones(SIZE, device="cuda")
    snapshot = torch.empty(SIZE, device="cuda")
    reader_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = inputs * 2.0
    graph.replay()
    reader_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(reader_stream):
        snapshot.copy_(result)  # MAYBE m
    del result  # MAYBE m
    padding = torch.full((SIZE,), -1.0, device="cuda")

    torch.cuda.synchronize()
    return padding


if __name__ == "__main__":
    main()
