"""A custom operator changes its argument on one stream while another reads it.

rule: S1, E2
kind: R02-SLOT-WAR
verdict: race
source: PyTorch documentation, torch.library.custom_op
twin: r02_custom_op_mutates_clean
why: the operator's body rewrites state on the default stream, unordered with the reader (WAR).
"""

import torch

SIZE = 1 << 16


@torch.library.custom_op("cases::decay", mutates_args=("state",))
def decay(state: torch.Tensor, gain: torch.Tensor, rate: float) -> None:
    state.mul_(rate).add_(gain)  # RACE a


def main() -> None:
    torch.manual_seed(0)
    state = torch.randn(SIZE, device="cuda")
    gain = torch.randn(SIZE, device="cuda")
    seen = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        seen.copy_(state)  # RACE a
    decay(state, gain, 0.9)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
