"""An elementwise function from source reads what a side stream is changing.

rule: S1, E2
kind: R01-PROD-CONS
verdict: race
source: own
twin: r01_elementwise_source_clean
only: cuda
why: the function reads x and writes its result, and nothing orders it with the side stream (RAW, WAW).
"""

import torch

SIZE = 1 << 16
CODE = "template <typename T> T blend(T x, T y, T weight) { return x + weight * (y - x); }"


def main() -> None:
    torch.manual_seed(0)
    blend = torch.cuda.jiterator._create_jit_fn(CODE, weight=0.5)
    x, y = (torch.randn(SIZE, device="cuda") for _ in range(2))
    blend(x, y)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        x.mul_(2.0)  # RACE a
    blended = blend(x, y)  # RACE a b
    with torch.cuda.stream(side):
        blended.mul_(2.0)  # RACE b

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
