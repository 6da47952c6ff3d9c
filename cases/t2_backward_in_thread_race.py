"""A thread runs backward on a side stream and the main thread uses the gradient.

rule: T2, A4
kind: R06-AUTOGRAD-STREAM
verdict: race
source: own
twin: t2_backward_in_thread_clean
why: the thread's join orders the host only; the gradient is written on side (RAW).
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
            loss.backward()  # RACE a

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    torch.mul(weight.grad, 0.5, out=scaled)  # RACE a
    torch.cuda.synchronize()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
