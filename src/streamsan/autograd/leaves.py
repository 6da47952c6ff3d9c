"""The nodes that accumulate the gradients of leaves, also of leaves that a transform made."""

from __future__ import annotations

from typing import Any

import torch

from streamsan.autograd.unseen import Unseen, untransformed

_functorch: Any = torch._C._functorch


def accumulator(leaf: torch.Tensor) -> Any:
    """The node that accumulates the gradient of a leaf; None for what a transform has left over."""
    with Unseen(), torch.enable_grad():
        view = _view(leaf)
    return None if view is None or view.grad_fn is None else view.grad_fn.next_functions[0][0]


def _view(leaf: torch.Tensor) -> torch.Tensor | None:
    """The leaf as the result of an operation, made under the transform that the leaf is of."""
    if not _functorch.is_functorch_wrapped_tensor(leaf):
        with untransformed():
            return leaf.view_as(leaf)
    transform = _functorch.peek_interpreter_stack()
    if transform is None or transform.level() != _functorch.maybe_get_level(leaf):
        return None
    return leaf.view_as(leaf)
