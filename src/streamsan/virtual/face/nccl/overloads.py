"""The forms in which torch lets the methods of a process group be called.

Beside the long form, lists of tensors and an object of options, most have a short one: one tensor,
and the options spelled out. Arguments may be given by name (init.cpp of c10d).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from streamsan.virtual.face.collective_ops import MethodCall

_SHORT: dict[str, tuple[str, ...]] = {
    "allgather": ("AllgatherOptions",),
    "allreduce": ("AllreduceOptions", "reduceOp"),
    "broadcast": ("BroadcastOptions", "rootRank"),
    "gather": ("GatherOptions", "rootRank"),
    "reduce": ("ReduceOptions", "rootRank", "reduceOp"),
    "reduce_scatter": ("ReduceScatterOptions", "reduceOp"),
    "scatter": ("ScatterOptions", "rootRank"),
}
"""Methods with a short form: the class of their options, and what of them is spelled out."""

_NAMES = {"op": "reduceOp", "root": "rootRank", "dstRank": "peer", "srcRank": "peer"}
"""What torch's names stand for."""


def in_all_forms(method: str, long: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method that takes the long form by place be called in all of them."""

    @wraps(long)
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        given = MethodCall(method, args, kwargs)
        tensors = given.tensor_arguments()
        rest = args[len(tensors) :]
        named = {_NAMES.get(key, key): value for key, value in given.other_keywords().items()}
        if method in _SHORT:
            if any(isinstance(value, torch.Tensor) for value in tensors):
                tensors = [[value] for value in tensors]
            return long(group, *tensors, _options(_SHORT[method], rest, named))
        return long(group, *tensors, *rest, **named)

    return call


def _options(short: tuple[str, ...], rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The options of a call, whether they are an object or spelled out."""
    kind: Any = getattr(torch._C._distributed_c10d, short[0])
    given = rest[0] if rest else named.get("opts")
    if isinstance(given, kind):
        return given
    options = kind()
    for place, name in enumerate(short[1:]):
        value = rest[place] if place < len(rest) else named.get(name)
        if value is not None:
            setattr(options, name, value)
    return options
