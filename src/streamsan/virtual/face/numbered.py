"""Devices named by a number: torch asks the accelerator about them, which a CPU build lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch._library import infer_schema

from streamsan.virtual.face.overrides import scriptable

_device = torch.device
_parse_to = torch._C._nn._parse_to

_CONSTRUCTORS = (
    "empty", "empty_like", "empty_permuted", "empty_strided", "zeros", "zeros_like", "ones",
    "ones_like", "full", "full_like", "rand", "rand_like", "randn", "randn_like", "randint",
    "randint_like", "randperm", "arange", "linspace", "logspace", "eye", "scalar_tensor",
    "tril_indices", "triu_indices", "hann_window", "hamming_window", "bartlett_window",
    "blackman_window", "kaiser_window",
)  # fmt: skip


def named(device: Any) -> Any:
    """`device`, or the virtual device of a number."""
    return _device("cuda", device) if type(device) is int else device


class _DeviceType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _device)


class device(metaclass=_DeviceType):  # noqa: N801 - torch.device
    """``torch.device``: makes torch's own objects, also from a number alone."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the object."""
        if len(args) == 1 and not kwargs:
            return _device(named(args[0]))
        return _device(*args, **kwargs)


device.__module__ = "torch"  # where pickles of devices look for it


def _numbered(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("device")) is int:
            kwargs["device"] = named(kwargs["device"])
        return function(*args, **kwargs)

    return scriptable(call, function)


def _parse(*args: Any, **kwargs: Any) -> Any:
    """What ``Module.to`` reads its arguments with: of a tensor, it is the device and the dtype."""
    device, *rest = _parse_to(
        *map(named, args), **{name: named(value) for name, value in kwargs.items()}
    )
    like = kwargs.get("tensor", args[0] if args else None)
    return (like.device if isinstance(like, torch.Tensor) else device, *rest)


def install() -> None:
    """Replace what takes a device."""
    torch.device = device  # type: ignore[misc]
    known = infer_schema.SUPPORTED_PARAM_TYPES  # of the annotations of own operators
    pairs: tuple[tuple[Any, Any], ...] = ((device, _device), (device | None, _device | None))
    known.update({ours: known[theirs] for ours, theirs in pairs if theirs in known})
    torch._C._nn._parse_to = _parse
    for name in _CONSTRUCTORS:
        setattr(torch, name, _numbered(getattr(torch, name)))
