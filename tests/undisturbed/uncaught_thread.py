"""Exceptions that end threads: told by the program's own hook, and by Python's."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

device = sys.argv[1]


def work(size: int) -> None:
    kept = torch.ones(size, device=device)
    kept.repeat(3)[size, size]


def mine(arguments: Any) -> None:
    print("hook:", arguments.exc_type.__name__, arguments.thread.name)


for hook in (mine, threading.__excepthook__):
    threading.excepthook = hook
    thread = threading.Thread(target=work, args=(4,), name="worker")
    thread.start()
    thread.join()
print("the program goes on")
sys.exit(4)
