"""Queries are rotated in place inside a packed projection whose keys and values are read.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_rotary_queries_race
why: queries, keys and values alternate in memory, and the read leaves the queries out.
"""

import torch

TOKENS, HEAD = 1024, 64


def main() -> None:
    torch.manual_seed(0)
    packed = torch.randn(TOKENS, 3, HEAD, device="cuda")
    cached = torch.empty(TOKENS, 2, HEAD, device="cuda")
    rotary_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(rotary_stream):
        packed[:, 0].neg_()
    torch.mul(packed[:, 1:3], 1.0, out=cached)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
