"""What replaced functions owe to torch: methods of ``torch.Tensor`` ask modes and subclasses first,
as torch's own do, and ``torch.jit.script`` goes on to know the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.jit import _builtins
from torch.overrides import handle_torch_function, has_torch_function_unary

Method = Callable[..., Any]


def method(replacement: Method, name: str) -> Method:
    """What takes the place of the method `name`."""

    @wraps(getattr(torch.Tensor, name))
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(call, (self,), self, *args, **kwargs)
        return replacement(self, *args, **kwargs)

    return call


def attribute(getter: Method) -> property:
    """What takes the place of a read-only attribute."""

    def get(self: torch.Tensor) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(shown.__get__, (self,), self)
        return getter(self)

    shown = property(get)
    return shown


def scriptable(replacement: Method, original: Method) -> Method:
    """`replacement`, which ``torch.jit.script`` compiles to the operator of `original`."""
    builtin = _builtins._find_builtin(original)
    if builtin is not None:
        _builtins._register_builtin(replacement, builtin)
    return replacement
