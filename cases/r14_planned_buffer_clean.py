"""A planned arena gives the third buffer a place of its own.

rule: none
kind: R14-COMPILER
verdict: clean
source: own; what a memory planner that knows no streams would emit
twin: r14_planned_buffer_race
why: the third buffer shares no byte with what the side stream reads.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(SIZE, device="cuda")
    auxiliary = torch.empty(SIZE, device="cuda")
    arena = torch.zeros(3 * SIZE, device="cuda")
    side_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    first, second = arena[:SIZE], arena[SIZE : 2 * SIZE]
    third = arena[2 * SIZE :]
    torch.mul(inputs, 2.0, out=first)
    torch.add(first, 1.0, out=second)
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        torch.neg(first, out=auxiliary)
    torch.mul(second, 3.0, out=third)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
