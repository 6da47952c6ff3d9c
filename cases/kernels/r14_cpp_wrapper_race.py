"""A function compiled to C++ works on what a side stream is changing.

rule: S1, E2
kind: R14-COMPILER
verdict: race
source: own
twin: r14_cpp_wrapper_clean
only: cuda
why: the generated code's matrix product and kernel read weight and x, unordered with the side stream (RAW, WAR).
"""

import torch
import torch._inductor.config

SIZE = 256


@torch.compile
def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weight) + x


def main() -> None:
    torch._inductor.config.cpp_wrapper = True
    torch.manual_seed(0)
    x, weight = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))
    side = torch.cuda.Stream()
    project(x, weight)
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        weight.mul_(0.5)  # RACE a
    y = project(x, weight)  # RACE a b
    with torch.cuda.stream(side):
        x.neg_()  # RACE b

    torch.cuda.synchronize()
    print(tuple(y.shape))


if __name__ == "__main__":
    main()
