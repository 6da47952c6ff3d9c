"""A graph is captured while its input is being loaded, and replayed after the load.

rule: G1, G2
kind: R13-GRAPH-REPLAY
verdict: clean
source: CUDA Runtime API, stream capture
twin: g1_load_during_capture_race
why: capturing reads nothing, and the host waits for the load before the replay.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    host_cache = torch.randn(SIZE).pin_memory()
    cache = torch.ones(SIZE, device="cuda")
    scores = torch.empty(SIZE, device="cuda")
    load_stream, capture_stream = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.mul(cache, 2.0, out=scores)
    torch.cuda.synchronize()

    with torch.cuda.stream(load_stream):
        cache.copy_(host_cache, non_blocking=True)
    with torch.cuda.stream(capture_stream):
        graph.capture_begin()
        torch.mul(cache, 2.0, out=scores)
        graph.capture_end()
        load_stream.synchronize()
        graph.replay()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
