"""A download is read after a copy of its source to the meta device, which copies nothing.

rule: C2, C7
kind: R08-D2H-HOST-READ
verdict: race
source: own
twin: c2_shapes_on_meta_clean
why: to("meta") keeps the shape alone and waits for nothing, and the host reads landed at once.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    weights = torch.ones(SIZE, device="cuda")
    landed = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize()

    landed.copy_(weights, non_blocking=True)  # RACE a
    shapes = weights.to("meta")
    first = landed[0].item()  # RACE a

    torch.cuda.synchronize()
    print(first <= 1.0, tuple(shapes.shape))


if __name__ == "__main__":
    main()
