"""Signals arrive in the program's handlers, while it computes and while it waits."""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch

device = sys.argv[1]
got: list[str] = []
weight = torch.ones(32, 32, device=device)
still = weight.clone()  # a handler may find the other one half-way


def handler(number: int, _: object) -> None:
    got.append(f"{signal.Signals(number).name} {(still + 1).sum().item()}")


def later() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
while not got:
    weight = torch.mm(weight, weight) / weight.sum()
    weight.fill_(1.0)
thread = threading.Timer(0.01, later)
thread.start()
while len(got) < 2:
    thread.join()
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print(got, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("not reached")
