"""Two graphs that draw random numbers are launched on two streams.

rule: G2, E2
kind: R02-SLOT-WAR
verdict: race
source: own; PyTorch's CUDA generator, whose graphs share seed and offset
only: cuda
twin: g2_random_numbers_clean
why: each launch fills the seed and the offset that all graphs of a generator read (WAW).
"""

import torch

SIZE = 1 << 16


def capture(noise: torch.Tensor) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        noise.uniform_()
    return graph


def main() -> None:
    left, right = torch.zeros(SIZE, device="cuda"), torch.zeros(SIZE, device="cuda")
    graphs = capture(left), capture(right)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    graphs[0].replay()  # RACE a
    with torch.cuda.stream(side):
        graphs[1].replay()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
