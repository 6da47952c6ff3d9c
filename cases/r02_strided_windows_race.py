"""Windows of a signal are read with a hop that meets the samples written.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own
twin: r02_strided_windows_clean
why: windows of 4 in hops of 8 hold samples 0 to 3 of each 8; sample 3 is written (WAR).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    signal = torch.zeros(1024, device="cuda")
    frames = torch.zeros(128, 4, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(side):
        frames.copy_(signal.as_strided((128, 4), (8, 1)))  # RACE a
    signal[3::8].fill_(1.0)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
