"""A colour channel of channels-last images is normalized while the other two are read.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_channels_last_race
why: channels lie interleaved in memory, but channel 2 shares no byte with channels 0 and 1.
"""

import torch

IMAGES, SIDE = 2, 64


def main() -> None:
    torch.manual_seed(0)
    images = torch.randn(IMAGES, 3, SIDE, SIDE, device="cuda")
    images = images.to(memory_format=torch.channels_last)
    luminance = torch.empty(IMAGES, SIDE, SIDE, device="cuda")
    normalize_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(normalize_stream):
        images[:, 2].sub_(0.5)
    torch.add(images[:, 0], images[:, 1], out=luminance)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
