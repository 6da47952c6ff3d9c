"""Tensors of ``torch.func``: what a transform hands to a function stands for another tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

_functorch: Any = torch._C._functorch


def stands_for(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor below a batched or differentiated one; None where `tensor` is neither."""
    if not _functorch.is_functorch_wrapped_tensor(tensor):
        return None
    return _functorch.get_unwrapped(tensor)  # type: ignore[no-any-return]


def inside(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """What stands for the result of `change` as `tensor` stands for its argument."""
    level, batch = _functorch.maybe_get_level(tensor), _functorch.maybe_get_bdim(tensor)
    with temporarily_clear_interpreter_stack():
        changed = change(_functorch.get_unwrapped(tensor))
    if batch >= 0:
        return _functorch._add_batch_dim(changed, batch, level)  # type: ignore[no-any-return]
    return _functorch._wrap_for_grad(changed, level)  # type: ignore[no-any-return]
