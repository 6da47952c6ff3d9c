"""Windows of a signal are read with a hop that misses the samples written.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own
twin: r02_strided_windows_race
why: sample 4 of each 8 is written.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    signal = torch.zeros(1024, device="cuda")
    frames = torch.zeros(128, 4, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        frames.copy_(signal.as_strided((128, 4), (8, 1)))
    signal[4::8].fill_(1.0)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
