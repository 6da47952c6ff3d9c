"""A condition announces a frame whose download is not synchronized.

rule: T1, H1
kind: R08-D2H-HOST-READ
verdict: race
source: Python documentation, threading (Condition)
twin: t1_condition_clean
why: the viewer wakes with the order of the notifier, which had none with the copy stream.
"""

import threading

import torch

HEIGHT, WIDTH = 64, 256


def view(frame: torch.Tensor, frames: list[int], arrived: threading.Condition) -> None:
    with arrived:
        arrived.wait_for(lambda: frames)
    frames.append(int(frame.max()))  # RACE a


def main() -> None:
    rendered = torch.full((HEIGHT, WIDTH), 255.0, device="cuda")
    frame = torch.zeros(HEIGHT, WIDTH, pin_memory=True)
    frames: list[int] = []
    arrived = threading.Condition()
    copy_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    viewer = threading.Thread(target=view, args=(frame, frames, arrived))
    viewer.start()
    with torch.cuda.stream(copy_stream):
        frame.copy_(rendered, non_blocking=True)  # RACE a
    with arrived:
        frames.append(1)
        arrived.notify()
    copy_stream.synchronize()
    viewer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
