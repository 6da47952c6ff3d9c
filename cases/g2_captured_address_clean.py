"""The next batch is uploaded into a spare tensor during a replay.

rule: G2
kind: R13-GRAPH-REPLAY
verdict: clean
source: torch notes, CUDA graphs
twin: g2_captured_address_race
why: the replay touches the captured addresses only, and the spare tensor lies elsewhere.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    host_batch = torch.randn(SIZE).pin_memory()
    captured_input = torch.ones(SIZE, device="cuda")
    spare_input = torch.ones(SIZE, device="cuda")
    output = torch.empty(SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.mul(captured_input, 2.0, out=output)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(captured_input, 2.0, out=output)
    torch.cuda.synchronize()

    next_input = spare_input
    graph.replay()
    with torch.cuda.stream(copy_stream):
        next_input.copy_(host_batch, non_blocking=True)

    torch.cuda.synchronize()
    print(spare_input.numel())


if __name__ == "__main__":
    main()
