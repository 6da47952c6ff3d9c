"""The output of a graph is read on a stream that does not wait for the event in the graph.

rule: G2, E1, E2
kind: R13-GRAPH-REPLAY
verdict: race
source: CUDA Runtime API, cudaEventRecordExternal
twin: g2_external_event_clean
why: nothing orders the launch before the read on reader_stream.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    hidden = torch.zeros(SIZE, device="cuda")
    logits = torch.zeros(SIZE, device="cuda")
    graph = torch.cuda.CUDAGraph()
    stream, reader_stream = torch.cuda.Stream(), torch.cuda.Stream()
    written = torch.cuda.Event(external=True)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        hidden.add_(1.0)
        written.record()

    graph.replay()  # RACE a
    with torch.cuda.stream(reader_stream):
        torch.exp(hidden, out=logits)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
