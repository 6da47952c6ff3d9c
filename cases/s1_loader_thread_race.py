"""A loader thread is expected to inherit the stream context of the thread that starts it.

rule: S1, T1
kind: R11-WRONG-STREAM
verdict: race
source: torch notes, CUDA semantics (current stream)
twin: s1_loader_thread_clean
why: the thread fills slot on the default stream; the copy stream reads it with no order.
"""

import threading

import torch

SIZE = 1 << 18


def load(slot: torch.Tensor, stream: torch.cuda.Stream | None) -> None:
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        slot.fill_(3.0)  # RACE a


def main() -> None:
    slot = torch.zeros(SIZE, device="cuda")
    doubled = torch.empty(SIZE, device="cuda")
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    loader = threading.Thread(target=load, args=(slot, None))
    with torch.cuda.stream(copy_stream):
        loader.start()
        loader.join()
        torch.mul(slot, 2.0, out=doubled)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
