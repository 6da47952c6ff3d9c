"""A hook downloads a gradient norm and waits for it inside the backward pass.

rule: T2, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, CUDA semantics; autograd mechanics
twin: t2_hook_synchronizes_race
why: the engine's thread gained the order, and the caller comes after the engine's threads.
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
        host_norm.copy_(norm, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    weight.register_post_accumulate_grad_hook(measure)
    loss = (weight * inputs).sum()
    loss.backward()
    largest = host_norm.item()

    torch.cuda.synchronize()
    print(isinstance(largest, float))


if __name__ == "__main__":
    main()
