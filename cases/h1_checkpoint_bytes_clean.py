"""A checkpoint is written out after waiting for the stream that downloads it.

rule: H1, C3
kind: R08-D2H-HOST-READ
verdict: clean
source: torch notes, CUDA semantics (pinned buffers)
twin: h1_checkpoint_bytes_race
why: the host comes after all work of the save stream.
"""

import io

import torch

SIZE = 1 << 16


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(SIZE, device="cuda")
    host_weights = torch.zeros(SIZE, pin_memory=True)
    compute_stream = torch.cuda.current_stream()
    save_stream = torch.cuda.Stream()
    checkpoint = io.BytesIO()
    torch.cuda.synchronize()

    save_stream.wait_stream(compute_stream)
    with torch.cuda.stream(save_stream):
        host_weights.copy_(weights, non_blocking=True)
    save_stream.synchronize()
    checkpoint.write(host_weights.numpy().tobytes())

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
