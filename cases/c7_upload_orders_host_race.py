"""An upload with non_blocking gives the host no order.

rule: C7, C1
kind: R01-PROD-CONS
verdict: race
source: own
twin: c7_upload_orders_host_clean
why: the upload may return once staged, and nothing orders fill_ before the product (RAW).
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
        values.fill_(1.0)  # RACE a
        limits = host.to("cuda", non_blocking=True)
    torch.mul(values, 2.0, out=doubled)  # RACE a
    torch.cuda.synchronize()
    del limits

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
