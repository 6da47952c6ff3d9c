"""What a tensor consists of: tensors of transforms, and of subclasses, stand for others."""

from __future__ import annotations

from typing import Any

import torch

from streamsan.autograd.unseen import Unseen

_functorch: Any = torch._C._functorch


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors with memory of their own that `tensor` stands for; itself where it is one."""
    if _functorch.is_functorch_wrapped_tensor(tensor):
        below = [_functorch.get_unwrapped(tensor)]
    elif _functorch.is_legacy_batchedtensor(tensor):
        below = [_without_batches(tensor)]
    elif hasattr(type(tensor), "__tensor_flatten__"):
        below = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]  # type: ignore[attr-defined]
    else:
        return [tensor]
    return [part for inner in below for part in parts(inner)]


def _without_batches(tensor: torch.Tensor) -> torch.Tensor:
    """A view of what the batched tensors of ``is_grads_batched`` have below; its shape is free."""
    depth = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    with Unseen(), torch.no_grad():
        for level in range(depth, 0, -1):
            tensor = torch._remove_batch_dim(tensor, level, 1, 0)
    return tensor
