"""``os._exit``: no exit handler runs, and no output is flushed."""

from __future__ import annotations

import atexit
import os
import sys

import torch

atexit.register(print, "not called")
tensor = torch.ones(8, device=sys.argv[1]) + 1
print("flushed", tensor.sum().item(), flush=True)
sys.stdout.write("lost where the output is no terminal")
os._exit(9)
