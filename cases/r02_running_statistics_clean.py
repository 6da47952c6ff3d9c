"""Two streams take turns with the running statistics of a batch normalisation.

rule: E2
kind: R02-SLOT-WAR
verdict: clean
source: own
twin: r02_running_statistics_race
why: the side stream waits for the first update.
"""

import torch
import torch.nn.functional as F

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    mean = torch.zeros(32, device="cuda")
    variance = torch.ones(32, device="cuda")
    one = torch.randn(16, 32, 16, device="cuda")
    two = torch.randn(16, 32, 16, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    first = F.batch_norm(one, mean, variance, training=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        second = F.batch_norm(two, mean, variance, training=True)
    torch.cuda.synchronize()
    del first, second

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
