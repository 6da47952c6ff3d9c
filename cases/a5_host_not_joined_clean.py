"""The host reads a gradient that a hook downloads after synchronizing its stream.

rule: A5, A4, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, stream semantics of backward passes
twin: a5_host_not_joined_race
why: the hook used the gradient's own stream, which the host waits for.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    torch.manual_seed(0)
    bias = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    host_gradient = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize()

    def download(gradient: torch.Tensor) -> None:
        host_gradient.copy_(gradient, non_blocking=True)

    bias.register_hook(download)
    loss = (bias * inputs).sum()
    loss.backward()
    torch.cuda.current_stream().synchronize()
    largest = max(host_gradient.tolist())

    torch.cuda.synchronize()
    print(largest >= 0.0)


if __name__ == "__main__":
    main()
