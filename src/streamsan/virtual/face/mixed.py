"""Functions of torch that put host tensors beside device tensors, and see to that below Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from streamsan.virtual.face import current


def _mixed(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        local = current.face().local
        before, local.mixed = local.mixed, True
        try:
            return function(*args, **kwargs)
        finally:
            local.mixed = before

    return call


_ctc_loss: Any = torch.ctc_loss


def ctc_loss(
    log_probs: torch.Tensor, targets: Any, input_lengths: Any, target_lengths: Any, *rest: Any
) -> torch.Tensor:
    """``torch.ctc_loss``: its lengths may be host tensors."""
    lengths = [
        x.to(log_probs.device) if isinstance(x, torch.Tensor) else x
        for x in (input_lengths, target_lengths)
    ]
    return _ctc_loss(log_probs, targets, *lengths, *rest)  # type: ignore[no-any-return]


def install() -> None:
    """Replace them."""
    replaced: Any = {"ctc_loss": (torch, ctc_loss)}
    name = "_pad_packed_sequence"
    replaced[name] = (torch._VF, _mixed(getattr(torch._VF, name)))
    for name, (owner, function) in replaced.items():
        setattr(owner, name, function)
