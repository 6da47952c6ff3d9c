"""All pages of a finished request are dropped after the owner stream has waited.

rule: M1
kind: R03-ALLOC-REUSE
verdict: clean
source: torch notes, CUDA semantics (memory management)
twin: m1_pages_clear_latent
why: the wait comes after the last read and before the drop.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    summary = torch.empty(SIZE, device="cuda")
    pages = [torch.full((SIZE,), float(i), device="cuda") for i in range(3)]
    reader_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(reader_stream):
        torch.add(pages[1], 1.0, out=summary)
    torch.cuda.current_stream().wait_stream(reader_stream)
    pages.clear()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
