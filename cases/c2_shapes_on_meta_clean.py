"""A download is read after a copy of its source to the host, which waits for its stream.

rule: C2, C7
kind: R08-D2H-HOST-READ
verdict: clean
source: own
twin: c2_shapes_on_meta_race
why: cpu() waits for the stream of both downloads before it returns, and the host reads landed then.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    weights = torch.ones(SIZE, device="cuda")
    landed = torch.zeros(SIZE, pin_memory=True)
    torch.cuda.synchronize()

    landed.copy_(weights, non_blocking=True)
    shapes = weights.cpu()
    first = landed[0].item()

    torch.cuda.synchronize()
    print(first <= 1.0, tuple(shapes.shape))


if __name__ == "__main__":
    main()
