"""A step runs eagerly on the stream on which its capture was given up, and nothing waits for it.

rule: G1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: g1_capture_given_up_clean
why: what stream does after the capture is ordinary work, which the default stream does not wait for.
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
        hidden.add_(1.0)  # RACE a
    hidden.mul_(2.0)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
