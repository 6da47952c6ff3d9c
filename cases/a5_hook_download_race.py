"""A gradient hook downloads on a copy stream that nobody waits for.

rule: A5, H1
kind: R06-AUTOGRAD-STREAM
verdict: race
source: torch notes, stream semantics of backward passes
twin: a5_hook_download_clean
why: the pass and the caller's stream do not cover what a hook does on another stream.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    host_gradient = torch.zeros(SIZE, pin_memory=True)
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    def download(parameter: torch.Tensor) -> None:
        copy_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy_stream):
            host_gradient.copy_(parameter.grad, non_blocking=True)  # RACE a

    weight.register_post_accumulate_grad_hook(download)
    loss = (weight * inputs).sum()
    loss.backward()
    torch.cuda.current_stream().synchronize()
    norm = float(host_gradient.norm())  # RACE a

    torch.cuda.synchronize()
    print(norm >= 0.0)


if __name__ == "__main__":
    main()
