"""A tensor is copied to the second device while a side stream of the first still writes it.

rule: C8, E2
kind: R15-MULTI-DEVICE
verdict: race
source: torch notes, CUDA semantics (cross-GPU copies)
twin: c8_copy_between_clean
devices: 2
why: the copy waits for the devices' current streams, and the writer is not one of them.
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
        source.fill_(2.0)  # RACE a
    target.copy_(source, non_blocking=True)  # RACE a
    torch.sqrt(target, out=result)

    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)


if __name__ == "__main__":
    main()
