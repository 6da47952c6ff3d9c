"""A loader thread is handed the stream that its starter works on.

rule: S1, T1
kind: R11-WRONG-STREAM
verdict: clean
source: torch notes, CUDA semantics (current stream)
twin: s1_loader_thread_race
why: fill and multiply run on the copy stream in the order in which they were enqueued.
"""

import threading

import torch

SIZE = 1 << 18


def load(slot: torch.Tensor, stream: torch.cuda.Stream | None) -> None:
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        slot.fill_(3.0)


def main() -> None:
    slot = torch.zeros(SIZE, device="cuda")
    doubled = torch.empty(SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    loader = threading.Thread(target=load, args=(slot, copy_stream))
    with torch.cuda.stream(copy_stream):
        loader.start()
        loader.join()
        torch.mul(slot, 2.0, out=doubled)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
