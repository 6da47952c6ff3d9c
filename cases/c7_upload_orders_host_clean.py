"""An upload without non_blocking makes the host wait for its stream.

rule: C7, C1
kind: R01-PROD-CONS
verdict: clean
source: own
twin: c7_upload_orders_host_race
why: to() waits for side.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    host = torch.ones(1024)
    values = torch.zeros(SIZE, device="cuda")
    doubled = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        values.fill_(1.0)
        limits = host.to("cuda")
    torch.mul(values, 2.0, out=doubled)
    torch.cuda.synchronize()
    del limits

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
