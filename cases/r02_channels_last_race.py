"""A colour channel of channels-last images is normalized while two channels are read.

rule: none
kind: R02-SLOT-WAR
verdict: race
source: own; byte ranges of strided views
twin: r02_channels_last_clean
why: the reader takes channels 0 and 1, the normalization writes channel 1 (RAW).
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
        images[:, 1].sub_(0.5)  # RACE a
    torch.add(images[:, 0], images[:, 1], out=luminance)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
