"""The join of a captured branch comes after the operation that needs it.

rule: G1, G2
kind: R13-GRAPH-REPLAY
verdict: race
source: CUDA Runtime API, stream capture (cross-stream dependencies)
twin: g1_captured_join_clean
why: inside the graph nothing orders the branch's write of hidden before its read.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    inputs = torch.ones(SIZE, device="cuda")
    hidden = torch.zeros(SIZE, device="cuda")
    output = torch.zeros(SIZE, device="cuda")
    branch_stream = torch.cuda.Stream()
    torch.mul(inputs, 2.0, out=hidden)
    torch.add(hidden, 1.0, out=output)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()

    with torch.cuda.graph(graph):
        capture_stream = torch.cuda.current_stream()
        branch_stream.wait_stream(capture_stream)
        with torch.cuda.stream(branch_stream):
            torch.mul(inputs, 2.0, out=hidden)  # RACE a
        torch.add(hidden, 1.0, out=output)  # RACE a
        capture_stream.wait_stream(branch_stream)
    graph.replay()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
