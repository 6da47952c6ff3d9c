"""A checkpoint is written out after waiting for the compute stream only.

rule: H1, C3
kind: R08-D2H-HOST-READ
verdict: race
source: torch notes, CUDA semantics (pinned buffers)
twin: h1_checkpoint_bytes_clean
why: the download runs on the save stream, and the host reads host_weights while it may run.
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
        host_weights.copy_(weights, non_blocking=True)  # RACE a
    compute_stream.synchronize()
    checkpoint.write(host_weights.numpy().tobytes())  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
