"""Which calls of an operator make the host wait for its stream (rules H1 and C7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from streamsan.virtual.face.schema import Plan
from streamsan.virtual.face.tensors import Tensors

_MASKS = (torch.bool, torch.uint8)


def host_waits(
    plan: Plan, tensors: Tensors, args: Sequence[Any], kwargs: dict[str, Any], device: int
) -> bool:
    """Whether the host needs a value of the operator, or uploads one for it, to go on."""
    if not plan.masked:
        return plan.synchronizes
    indices = list(_tensors_in(args[1] if len(args) > 1 else kwargs.get("indices")))
    value = args[2] if len(args) > 2 else kwargs.get("values")
    if isinstance(value, torch.Tensor) and tensors.owner(value) < 0:
        return not _fills(tensors, indices, value, args, kwargs, device)
    return any(
        index.dtype in _MASKS or tensors.owner(index) != device  # counted, or uploaded
        for index in indices
    )


def _fills(
    tensors: Tensors,
    indices: Sequence[torch.Tensor],
    value: torch.Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    device: int,
) -> bool:
    """Whether torch makes a masked fill of an assignment of a host value (one mask, no sum)."""
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    return (
        not accumulate
        and value.numel() == 1
        and len(indices) == 1
        and indices[0].dtype in _MASKS
        and tensors.owner(indices[0]) == device
    )


def _tensors_in(values: Any) -> Iterator[torch.Tensor]:
    return (value for value in values or () if isinstance(value, torch.Tensor))
