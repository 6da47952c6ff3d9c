"""A static input is uploaded on a side stream while the last replay reads it.

rule: G2, C3
kind: R13-GRAPH-REPLAY
verdict: race
source: own
twin: g2_static_input_upload_clean
why: the copy overwrites static while the replay reads it (WAR), and the next replay reads what is being copied (RAW).
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
        with torch.cuda.stream(copy_stream):
            static.copy_(host, non_blocking=True)  # RACE a
        graph.replay()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
