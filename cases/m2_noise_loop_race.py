"""Noise is drawn into a new tensor each step and added on a side stream.

rule: M2, M1
kind: R03-ALLOC-REUSE
verdict: race
source: torch API, Tensor.record_stream
twin: m2_noise_loop_clean
why: a dropped block returns to the default stream, which refills it during the addition.
"""

import torch

SIZE = 1 << 20


def main() -> None:
    total = torch.zeros(SIZE, device="cuda")
    compute_stream = torch.cuda.current_stream()
    noise_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    for step in range(4):
        noise = torch.full((SIZE,), float(step), device="cuda")  # RACE a
        noise_stream.wait_stream(compute_stream)
        with torch.cuda.stream(noise_stream):
            total.add_(noise)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
