"""The event of a finished page is dropped after the wait.

rule: E5, E2
kind: R05-EVENT-MISUSE
verdict: clean
source: CUDA Runtime API, cudaEventDestroy
twin: e5_event_dropped_race
why: the order that the wait took stays when the event is destroyed.
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
        page.fill_(4.0)
        loaded.record()
    torch.cuda.current_stream().wait_event(loaded)
    del loaded
    torch.sqrt(page, out=roots)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
