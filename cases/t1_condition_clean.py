"""A condition announces a frame whose download is synchronized.

rule: T1, H1
kind: R08-D2H-HOST-READ
verdict: clean
source: Python documentation, threading (Condition)
twin: t1_condition_race
why: the notifier synchronized the copy stream before it released the condition.
"""

import threading

import torch

HEIGHT, WIDTH = 64, 256


def view(frame: torch.Tensor, frames: list[int], arrived: threading.Condition) -> None:
    with arrived:
        arrived.wait_for(lambda: frames)
    frames.append(int(frame.max()))


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
        frame.copy_(rendered, non_blocking=True)
    copy_stream.synchronize()
    with arrived:
        frames.append(1)
        arrived.notify()
    viewer.join()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
