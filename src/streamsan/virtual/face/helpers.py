"""Functions that make tensors in C++ before any of their operators has shown where they work.

Such a tensor has the options of an argument, which say ``cpu`` of device tensors too, and goes to
where the last operator worked. These functions say beforehand where that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch

from streamsan.virtual.face import current, overrides
from streamsan.virtual.memory import NOWHERE

_DROPOUTS = (
    "alpha_dropout", "alpha_dropout_", "dropout", "dropout_", "feature_alpha_dropout",
    "feature_alpha_dropout_", "feature_dropout", "feature_dropout_",
)  # fmt: skip

_FUNCTIONS: dict[Any, tuple[str, ...]] = {
    torch: (
        *_DROPOUTS, "combinations", "corrcoef", "cov", "nanquantile", "pinverse", "quantile",
        "_sobol_engine_draw", "_sobol_engine_ff_", "_sobol_engine_initialize_state_",
        "_sobol_engine_scramble_",
    ),
    torch.linalg: ("matrix_rank", "pinv"),
    torch.nn.functional: ("pad",),
    torch._VF: _DROPOUTS,
}  # fmt: skip
_METHODS = ("corrcoef", "cov", "nanquantile", "pinverse", "quantile")


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        face = current.face()
        face.local.last = _owner((*args, *kwargs.values()))
        return function(*args, **kwargs)

    return overrides.scriptable(call, function)


def _owner(values: Iterable[Any]) -> int:
    """Where the tensors among `values` are."""
    owner = current.face().tensors.owner
    found = NOWHERE
    for value in values:
        if isinstance(value, torch.Tensor):
            found = max(found, owner(value))
    return found


def install() -> None:
    """Replace them."""
    for module, names in _FUNCTIONS.items():
        for name in names:
            setattr(module, name, _told(getattr(module, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, overrides.method(_told(getattr(torch.Tensor, name)), name))
