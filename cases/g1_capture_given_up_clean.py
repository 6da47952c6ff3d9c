"""A step runs eagerly on the stream on which its capture was given up, and the default stream waits.

rule: G1, E2
kind: R01-PROD-CONS
verdict: clean
source: own
twin: g1_capture_given_up_race
why: the default stream waits for stream.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    hidden = torch.zeros(SIZE, device="cuda")
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    try:
        with torch.cuda.graph(graph, stream=stream):
            hidden.add_(1.0)
            raise ValueError("this step cannot be captured")
    except ValueError:
        pass
    with torch.cuda.stream(stream):
        hidden.add_(1.0)
    torch.cuda.current_stream().wait_stream(stream)
    hidden.mul_(2.0)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
