"""The host waits for the wrong one of two load streams before it uses an expert.

rule: S3, H1
kind: R01-PROD-CONS
verdict: race
source: torch notes, CUDA semantics (stream synchronize)
twin: s3_host_relay_clean
why: the stream that fills expert was not waited for, so the multiply may read it too early.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(SIZE, device="cuda")
    expert = torch.zeros(SIZE, device="cuda")
    other_expert = torch.zeros(SIZE, device="cuda")
    routed = torch.empty(SIZE, device="cuda")
    load_streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()

    with torch.cuda.stream(load_streams[0]):
        expert.fill_(0.25)  # RACE a
    with torch.cuda.stream(load_streams[1]):
        other_expert.fill_(0.5)
    load_streams[1].synchronize()
    torch.mul(tokens, expert, out=routed)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
