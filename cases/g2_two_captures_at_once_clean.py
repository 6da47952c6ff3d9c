"""Two graphs that threads captured at the same time are launched one after the other.

rule: G1, G2, E2
kind: R13-GRAPH-REPLAY
verdict: clean
source: torch notes, CUDA graphs (capture error modes)
twin: g2_two_captures_at_once_race
why: the side stream waits for the first launch.
"""

import threading

import torch

SIZE = 1 << 16


def capture(graph: torch.cuda.CUDAGraph, pool: torch.Tensor, other: torch.Tensor) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        TOGETHER.wait()
        pool.add_(other)
        TOGETHER.wait()
        graph.capture_end()


TOGETHER = threading.Barrier(2)


def main() -> None:
    left, right = torch.zeros(SIZE, device="cuda"), torch.ones(SIZE, device="cuda")
    graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    threads = [
        threading.Thread(target=capture, args=(graphs[0], left, right)),
        threading.Thread(target=capture, args=(graphs[1], right, right)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()

    graphs[0].replay()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graphs[1].replay()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
