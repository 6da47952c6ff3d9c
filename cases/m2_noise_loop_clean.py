"""Noise is drawn into a new tensor each step and marked for the stream that adds it.

rule: M2, M1
kind: R03-ALLOC-REUSE
verdict: clean
source: torch API, Tensor.record_stream
twin: m2_noise_loop_race
why: a marked block is handed out again only after the work of the side stream.
"""

import torch

SIZE = 1 << 20


def main() -> None:
    total = torch.zeros(SIZE, device="cuda")
    compute_stream = torch.cuda.current_stream()
    noise_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    for step in range(4):
        noise = torch.full((SIZE,), float(step), device="cuda")
        noise_stream.wait_stream(compute_stream)
        with torch.cuda.stream(noise_stream):
            total.add_(noise)
        noise.record_stream(noise_stream)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
