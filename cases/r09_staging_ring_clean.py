"""A staging buffer is refilled after the event of its upload.

rule: C3, E3
kind: R09-H2D-SRC-WRITE
verdict: clean
source: own
twin: r09_staging_ring_race
why: the host waits for the event first.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    sources = torch.randn(4, SIZE)
    staging = torch.empty(2, SIZE).pin_memory()
    slots = torch.zeros(4, SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    uploaded = [None, None]
    torch.cuda.synchronize()

    for step in range(4):
        half = step % 2
        if uploaded[half]:
            uploaded[half].synchronize()
        torch.add(sources[step], 1.0, out=staging[half])
        with torch.cuda.stream(copy_stream):
            slots[step].copy_(staging[half], non_blocking=True)
            uploaded[half] = copy_stream.record_event()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
