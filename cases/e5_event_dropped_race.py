"""The event of a finished page is dropped and made anew before the wait.

rule: E5, E2
kind: R05-EVENT-MISUSE
verdict: race
source: CUDA Runtime API, cudaEventDestroy
twin: e5_event_dropped_clean
why: the new event was never recorded, whatever its handle, so the wait gives no order.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    page = torch.zeros(SIZE, device="cuda")
    roots = torch.empty(SIZE, device="cuda")
    load_stream = torch.cuda.Stream()
    loaded = torch.cuda.Event()
    torch.cuda.synchronize()

    with torch.cuda.stream(load_stream):
        page.fill_(4.0)  # RACE a
        loaded.record()
    del loaded
    loaded = torch.cuda.Event()
    torch.cuda.current_stream().wait_event(loaded)
    torch.sqrt(page, out=roots)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
