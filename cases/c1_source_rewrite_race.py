"""A prompt buffer in pinned memory is reused right after its asynchronous upload.

rule: C1, C3
kind: R09-H2D-SRC-WRITE
verdict: race
source: CUDA Runtime API, API synchronization behavior
twin: c1_source_rewrite_clean
why: the upload reads prompt when it runs, and the host overwrites it without waiting (WAR).
"""

import torch

SIZE = 1 << 16


def main() -> None:
    prompt = torch.ones(SIZE, pin_memory=True)
    device_prompt = torch.zeros(SIZE, device="cuda")
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(upload_stream):
        device_prompt.copy_(prompt, non_blocking=True)  # RACE a
    prompt.fill_(2.0)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
