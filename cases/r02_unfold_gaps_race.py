"""Audio frames are windowed on one stream, and the gaps between them from one sample early.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own; byte ranges of strided views
twin: r02_unfold_gaps_clean
why: each gap starts with the last sample of a frame, which both streams update.
"""

import torch

FRAME, STEP, FRAMES = 8, 16, 1024


def main() -> None:
    torch.manual_seed(0)
    signal = torch.randn(STEP * FRAMES, device="cuda")
    frame_stream, gap_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    frames = signal.unfold(0, FRAME, STEP)
    gaps = signal[FRAME - 1 :].unfold(0, FRAME, STEP)
    with torch.cuda.stream(frame_stream):
        frames.mul_(0.5)  # RACE a
    with torch.cuda.stream(gap_stream):
        gaps.zero_()  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
