"""Two producers are joined by synchronizing the device.

rule: H2, H1
kind: R01-PROD-CONS
verdict: clean
source: CUDA Runtime API, cudaDeviceSynchronize
twin: h2_two_producers_race
why: the device synchronize covers all streams of the device.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    halves = torch.zeros(2, SIZE, device="cuda")
    summed = torch.empty(SIZE, device="cuda")
    first_stream, second_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(first_stream):
        halves[0].fill_(1.0)
    with torch.cuda.stream(second_stream):
        halves[1].fill_(2.0)
    torch.cuda.synchronize()
    torch.sum(halves, dim=0, out=summed)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
