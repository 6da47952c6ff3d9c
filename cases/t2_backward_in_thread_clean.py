"""A thread runs backward on a side stream and the main thread's stream waits for it.

rule: T2, A4
kind: R06-AUTOGRAD-STREAM
verdict: clean
source: own
twin: t2_backward_in_thread_race
why: the default stream waits for side.
"""

import threading

import torch

SIZE = 1 << 18


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(SIZE, device="cuda", requires_grad=True)
    inputs = torch.randn(SIZE, device="cuda")
    scaled = torch.empty(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    def train() -> None:
        with torch.cuda.stream(side):
            loss = (weight * inputs).sum()
            loss.backward()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    torch.cuda.current_stream().wait_stream(side)
    torch.mul(weight.grad, 0.5, out=scaled)
    torch.cuda.synchronize()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
