"""Autocast of the virtual devices, with the cast lists of the CPU.

Device tensors are CPU tensors to torch's dispatcher, so a region for ``cuda`` switches CPU
autocast on underneath, with the region's dtype.
"""

from __future__ import annotations

from typing import Any

import torch

_set_enabled = torch.set_autocast_enabled
_set_dtype = torch.set_autocast_dtype
_enabled = torch.is_autocast_enabled


def set_enabled(*args: Any) -> None:
    """``torch.set_autocast_enabled``."""
    _set_enabled(*args)
    device, enabled = args if len(args) == 2 else ("cuda", *args)
    if device == "cuda":
        _set_enabled("cpu", enabled)


def set_dtype(device: str, dtype: torch.dtype) -> None:
    """``torch.set_autocast_dtype``."""
    _set_dtype(device, dtype)
    if device == "cuda":
        _set_dtype("cpu", dtype if _enabled("cuda") else torch.bfloat16)


def functions() -> dict[str, Any]:
    """Names of ``torch`` and what stands for them."""
    return {"set_autocast_enabled": set_enabled, "set_autocast_dtype": set_dtype}
