"""Warnings, logging and output: once, in order, from the program's own lines."""

from __future__ import annotations

import logging
import sys
import warnings

import torch

device = sys.argv[1]
logging.basicConfig(format="%(levelname)s %(message)s")
tensor = torch.ones(8, device=device)

print("out", tensor.sum().item(), flush=True)
sys.stderr.write(f"error {tensor.sum().item()}\n")
logging.getLogger("mine").warning("logged %s", tensor.shape)
for _ in range(2):
    warnings.warn("mine, said once", stacklevel=1)
    torch.tensor(tensor)  # torch warns of this
    tensor[:1].std()  # and its operator of this
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        torch.tensor(tensor)
        tensor[:1].std()
        optimizer = torch.optim.SGD([tensor.clone().requires_grad_()], lr=0.1)
        torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
for warning in caught:
    print(warning.category.__name__, str(warning.message).splitlines()[0], warning.filename)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
        torch.tensor(tensor + 1)
    except UserWarning as error:
        print("raised", type(error).__name__)
print(warnings.filters[:2])
