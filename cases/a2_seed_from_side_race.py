"""A root gradient made on a side stream is supplied on the default stream.

rule: A2
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: a2_seed_from_side_clean
why: the engine takes seed as produced on the caller's stream (RAW).
"""

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    seed = torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    output = weight * 3.0
    with torch.cuda.stream(side):
        seed.fill_(0.5)  # RACE a
    output.backward(seed)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
