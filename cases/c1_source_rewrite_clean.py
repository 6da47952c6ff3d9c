"""A prompt buffer in pageable memory is reused right after its blocking upload.

rule: C1, C3
kind: R09-H2D-SRC-WRITE
verdict: clean
source: CUDA Runtime API, API synchronization behavior
twin: c1_source_rewrite_race
why: the blocking form returns once the source was taken over, so the source may be changed.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    prompt = torch.ones(SIZE)
    device_prompt = torch.zeros(SIZE, device="cuda")
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(upload_stream):
        device_prompt.copy_(prompt)
    prompt.fill_(2.0)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
