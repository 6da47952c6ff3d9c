"""A function compiled to C++ works on what its stream has waited for.

rule: S1, E2
kind: R14-COMPILER
verdict: clean
source: own
twin: r14_cpp_wrapper_race
only: cuda
why: both streams wait for one another.
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
        weight.mul_(0.5)
    torch.cuda.current_stream().wait_stream(side)
    y = project(x, weight)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.neg_()

    torch.cuda.synchronize()
    print(tuple(y.shape))


if __name__ == "__main__":
    main()
