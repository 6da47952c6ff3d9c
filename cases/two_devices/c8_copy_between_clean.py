"""A tensor is copied to the second device after its writer was joined.

rule: C8, E2
kind: R15-MULTI-DEVICE
verdict: clean
source: torch notes, CUDA semantics (cross-GPU copies)
twin: c8_copy_between_race
devices: 2
why: the copy waits for both current streams, and the second device's stream waits for the copy.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    source = torch.zeros(SIZE, device="cuda:0")
    target = torch.zeros(SIZE, device="cuda:1")
    result = torch.empty(SIZE, device="cuda:1")
    writer_stream = torch.cuda.Stream("cuda:0")
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)

    with torch.cuda.stream(writer_stream):
        source.fill_(2.0)
    torch.cuda.current_stream(0).wait_stream(writer_stream)
    target.copy_(source, non_blocking=True)
    torch.sqrt(target, out=result)

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    main()
