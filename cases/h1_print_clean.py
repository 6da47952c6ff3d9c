"""A tensor is printed on its producer's stream.

rule: H1, C7
kind: R01-PROD-CONS
verdict: clean
source: own
twin: h1_print_race
why: print waits for side.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    count = torch.zeros(4, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        count.add_(1.0)
        print(count)
    print(count)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
