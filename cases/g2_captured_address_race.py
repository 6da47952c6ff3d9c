"""The next batch is uploaded into the captured input during a replay.

rule: G2
kind: R13-GRAPH-REPLAY
verdict: race
source: torch notes, CUDA graphs
twin: g2_captured_address_clean
why: the replay reads the captured addresses while the copy stream writes them (WAR).
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

    next_input = captured_input
    graph.replay()  # RACE a
    with torch.cuda.stream(copy_stream):
        next_input.copy_(host_batch, non_blocking=True)  # RACE a

    torch.cuda.synchronize()
    print(spare_input.numel())


if __name__ == "__main__":
    main()
