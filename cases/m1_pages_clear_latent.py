"""All pages of a finished request are dropped while another stream reads one of them.

rule: M1
kind: R03-ALLOC-REUSE
verdict: latent
source: torch notes, CUDA semantics (memory management)
twin: m1_pages_clear_clean
why: the owner stream waited before the last read, so the read is unordered when the list goes.
"""

import torch

SIZE = 1 << 16


def main() -> None:
    summary = torch.empty(SIZE, device="cuda")
    pages = [torch.full((SIZE,), float(i), device="cuda") for i in range(3)]
    reader_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    torch.cuda.current_stream().wait_stream(reader_stream)
    with torch.cuda.stream(reader_stream):
        torch.add(pages[1], 1.0, out=summary)  # LATENT a
    pages.clear()  # LATENT a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
