"""Queries are rotated in place inside a packed projection that is read up to the queries.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own; byte ranges of strided views
twin: r02_rotary_queries_clean
why: the read covers queries and keys, and the queries are being written (RAW).
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
        packed[:, 0].neg_()  # RACE a
    torch.mul(packed[:, 0:2], 1.0, out=cached)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
