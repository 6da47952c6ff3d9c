"""A tensor is printed on another stream than its producer's.

rule: H1, C7
kind: R01-PROD-CONS
verdict: race
source: own
twin: h1_print_clean
why: printing downloads count on the default stream while side writes it (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    count = torch.zeros(4, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        count.add_(1.0)  # RACE a
    print(count)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
