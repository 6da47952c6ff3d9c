"""The real parts of a spectrum are scaled while the imaginary parts are read.

rule: none
kind: R02-SLOT-WAR
verdict: clean
source: own; byte ranges of strided views
twin: r02_complex_parts_race
why: real and imaginary parts alternate in memory and share no byte.
"""

import torch

BINS = 1 << 15


def main() -> None:
    spectrum = torch.zeros(BINS, 2, device="cuda")
    output = torch.zeros(BINS, 2, device="cuda")
    real_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    numbers = torch.view_as_complex(spectrum)
    result = torch.view_as_complex(output)
    with torch.cuda.stream(real_stream):
        numbers.real.add_(1.0)
    torch.mul(numbers.imag, 2.0, out=result.imag)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
