"""One row of a bias table is read through an expanded view while another row is updated.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_expanded_bias_race
why: however often it is repeated, the view covers the bytes of row 3 only.
"""

import torch

ROWS, WIDTH = 16, 256


def main() -> None:
    torch.manual_seed(0)
    biases = torch.randn(ROWS, WIDTH, device="cuda")
    hidden = torch.randn(128, WIDTH, device="cuda")
    output = torch.empty(128, WIDTH, device="cuda")
    update_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    bias = biases[3].expand(128, WIDTH)
    with torch.cuda.stream(update_stream):
        biases[4].add_(0.1)
    torch.add(hidden, bias, out=output)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
