"""A graph is captured and replayed while its input is being loaded.

rule: G1, G2
kind: R13-GRAPH-REPLAY
verdict: race
source: CUDA Runtime API, stream capture
twin: g1_load_during_capture_clean
why: the replay reads cache on the capture stream; the load stream may still write it.
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
        cache.copy_(host_cache, non_blocking=True)  # RACE a
    with torch.cuda.stream(capture_stream):
        graph.capture_begin()
        torch.mul(cache, 2.0, out=scores)
        graph.capture_end()
        graph.replay()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
