"""What a program can see of its surroundings: names, path, threads, limits, references."""

from __future__ import annotations

import gc
import os
import sys
import weakref

import torch

device = sys.argv[1]
print(__name__, os.path.basename(__file__), sys.argv[0] == __file__, len(sys.argv))
print(sys.path[0] == os.path.dirname(os.path.abspath(__file__)), sys.getrecursionlimit())
print(sys.excepthook is sys.__excepthook__, sys.stdout is sys.__stdout__, sys.gettrace())
print(gc.isenabled(), gc.get_threshold(), os.getcwd() == os.environ.get("PWD", os.getcwd()))
print(torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())

tensor = torch.ones(8, device=device)
other = tensor + 1
print(sys.getrefcount(tensor), sys.getrefcount(other), type(other).__name__)
gone = weakref.ref(other)
del other
print("dropped at once:", gone() is None)
result = torch.mm(torch.ones(4, 4, device=device), torch.ones(4, 4, device=device))
gone = weakref.ref(result)
del result
print("dropped at once:", gone() is None)
view = tensor[2:4]
print(view._base is tensor, view.storage_offset(), view.data_ptr() - tensor.data_ptr())
print(tensor.requires_grad, tensor.is_leaf, tensor.grad_fn, tensor._version)
tensor.add_(1)
print(tensor._version, view._version)
