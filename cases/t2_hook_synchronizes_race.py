"""A hook starts the download of a gradient norm and leaves it to run.

rule: T2, H1
kind: R08-D2H-HOST-READ
verdict: race
source: torch notes, CUDA semantics; autograd mechanics
twin: t2_hook_synchronizes_clean
why: the host reads host_norm after backward while the download may be in flight.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    norm = torch.zeros((), device="cuda")
    host_norm = torch.zeros((), pin_memory=True)
    torch.cuda.synchronize()

    def measure(parameter: torch.Tensor) -> None:
        torch.amax(parameter.grad, dim=0, out=norm)
        host_norm.copy_(norm, non_blocking=True)  # RACE a

    weight.register_post_accumulate_grad_hook(measure)
    loss = (weight * inputs).sum()
    loss.backward()
    largest = host_norm.item()  # RACE a

    torch.cuda.synchronize()
    print(isinstance(largest, float))


if __name__ == "__main__":
    main()
