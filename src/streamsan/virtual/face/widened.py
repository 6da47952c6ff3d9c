"""Matrix products whose results have a wider type than their factors (``out_dtype``).

Only CUDA builds have kernels for them. Here the factors are widened first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
_FACTORS = {"mm": 2, "bmm": 2, "addmm": 3, "baddbmm": 3}
"""Operators by name, and how many tensors each takes."""


def _widened(plain: Any, count: int) -> Callable[..., torch.Tensor]:
    def call(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
        dtype = args[count] if len(args) > count else kwargs.pop("out_dtype")
        wide = (_aten._to_copy.default(factor, dtype=dtype) for factor in args[:count])
        product: torch.Tensor = plain(*wide, **kwargs)
        return product if out is None else _aten.copy_.default(out, product)

    return call


def _products() -> dict[Any, Callable[..., torch.Tensor]]:
    found: dict[Any, Callable[..., torch.Tensor]] = {}
    for name, count in _FACTORS.items():
        packet = getattr(_aten, name)
        for overload in ("dtype", "dtype_out"):
            if overload in packet.overloads():  # torch has them since 2.8
                found[getattr(packet, overload)] = _widened(packet.default, count)
    return found


PRODUCTS = _products()
"""By operator: what is run in its place."""
