"""A static input is uploaded behind the last replay.

rule: G2, C3
kind: R13-GRAPH-REPLAY
verdict: clean
source: own
twin: g2_static_input_upload_race
why: both streams wait for one another.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    host = torch.ones(SIZE).pin_memory()
    static = torch.zeros(SIZE, device="cuda")
    output = torch.zeros(SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static, 2.0, out=output)
    torch.cuda.synchronize()

    for _ in range(3):
        copy_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy_stream):
            static.copy_(host, non_blocking=True)
        torch.cuda.current_stream().wait_stream(copy_stream)
        graph.replay()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
