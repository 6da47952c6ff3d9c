"""Two producers are joined by synchronizing the consumer's own stream.

rule: H2, H1
kind: R01-PROD-CONS
verdict: race
source: CUDA Runtime API, cudaDeviceSynchronize
twin: h2_two_producers_clean
why: the stream synchronize covers the default stream; the side streams still write their halves.
"""

import torch

SIZE = 1 << 17


def main() -> None:
    halves = torch.zeros(2, SIZE, device="cuda")
    summed = torch.empty(SIZE, device="cuda")
    first_stream, second_stream = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(first_stream):
        halves[0].fill_(1.0)  # RACE a
    with torch.cuda.stream(second_stream):
        halves[1].fill_(2.0)  # RACE b
    torch.cuda.current_stream().synchronize()
    torch.sum(halves, dim=0, out=summed)  # RACE a b

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
