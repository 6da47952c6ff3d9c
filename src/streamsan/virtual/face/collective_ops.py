"""What collectives do with their tensors: neither schemas nor signatures say.

``torch.distributed`` calls its backends through the operators of ``torch.ops.c10d`` (c10d/Ops.cpp),
and so do the methods of a process group, the reducer of DistributedDataParallel and the functional
collectives, in C++ too. The methods of a backend object are the collectives themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from streamsan.model.records import Mode

LIBRARY = "c10d"
"""The namespace of the operators."""

_R, _W, _RW = int(Mode.READ), int(Mode.WRITE), int(Mode.READ_WRITE)


@dataclass(frozen=True)
class Form:
    """A collective: its name in reports, and how it touches its tensor arguments.

    `modes` are those of every rank, or of the root alone where `others` gives those of all others.
    They stand in the order in which operators and methods alike take these arguments first.
    """

    name: str
    modes: dict[str, int]
    others: dict[str, int] | None = None

    def modes_of(self, root: bool) -> dict[str, int]:
        """Modes of the tensor arguments, on the root or on another rank."""
        return self.modes if root or self.others is None else self.others


FORMS: dict[str, Form] = {
    "allreduce_": Form("all_reduce", {"tensors": _RW}),
    "allreduce_coalesced_": Form("all_reduce_coalesced", {"tensors": _RW}),
    "broadcast_": Form("broadcast", {"tensors": _R}, {"tensors": _W}),
    "reduce_": Form("reduce", {"tensors": _RW}, {"tensors": _R}),
    "allgather_": Form("all_gather", {"output_tensors": _W, "input_tensors": _R}),
    "_allgather_base_": Form("all_gather_into_tensor", {"output_tensor": _W, "input_tensor": _R}),
    "allgather_coalesced_": Form("all_gather_coalesced", {"output_lists": _W, "input_list": _R}),
    "allgather_into_tensor_coalesced_": Form(
        "all_gather_into_tensor_coalesced", {"outputs": _W, "inputs": _R}
    ),
    "reduce_scatter_": Form("reduce_scatter", {"output_tensors": _W, "input_tensors": _R}),
    "_reduce_scatter_base_": Form(
        "reduce_scatter_tensor", {"output_tensor": _W, "input_tensor": _R}
    ),
    "reduce_scatter_tensor_coalesced_": Form(
        "reduce_scatter_tensor_coalesced", {"outputs": _W, "inputs": _R}
    ),
    "gather_": Form("gather", {"output_tensors": _W, "input_tensors": _R}),
    "scatter_": Form("scatter", {"output_tensors": _W, "input_tensors": _R}),
    "alltoall_": Form("all_to_all", {"output_tensors": _W, "input_tensors": _R}),
    "alltoall_base_": Form("all_to_all_single", {"output": _W, "input": _R}),
    "barrier": Form("barrier", {}),
    "monitored_barrier_": Form("monitored_barrier", {}),
    "send": Form("send", {"tensors": _R}),
    "recv_": Form("recv", {"tensors": _W}),
    "recv_any_source_": Form("recv", {"tensors": _W}),
}
"""Every collective, by the operator's name without its namespace."""


METHODS: dict[str, str] = {
    "_allgather_base": "_allgather_base_",
    "_reduce_scatter_base": "_reduce_scatter_base_",
    "all_gather_single": "_allgather_base_",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced_",
    "all_to_all_single": "alltoall_base_",
    "allgather": "allgather_",
    "allgather_coalesced": "allgather_coalesced_",
    "allgather_into_tensor_coalesced": "allgather_into_tensor_coalesced_",
    "allreduce": "allreduce_",
    "allreduce_coalesced": "allreduce_coalesced_",
    "alltoall": "alltoall_",
    "alltoall_base": "alltoall_base_",
    "barrier": "barrier",
    "broadcast": "broadcast_",
    "gather": "gather_",
    "recv": "recv_",
    "recv_anysource": "recv_any_source_",
    "reduce": "reduce_",
    "reduce_scatter": "reduce_scatter_",
    "reduce_scatter_single": "_reduce_scatter_base_",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced_",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced_",
    "scatter": "scatter_",
    "send": "send",
}
"""The methods of a process group or a backend that return a handle, and the operator that each is.

Which of them there are differs by release and by class."""


def form_of(op: OpOverload) -> Form | None:
    """The form of an operator that is a collective, else None."""
    library, _, name = op._schema.name.partition("::")
    return FORMS.get(name) if library == LIBRARY else None


def argument(op: OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of an argument of a call; its default, or None, where the call leaves it out."""
    for position, declared in enumerate(op._schema.arguments):
        if declared.name == name:
            if position < len(args):
                return args[position]
            return kwargs.get(name, declared.default_value)
    return None


class MethodCall:
    """A call of one of `METHODS`: its tensors come first, then a root, a peer, or options.

    Keywords are named differently from release to release, and from one overload of a method to
    the other, but each begins with what it is: ``tensor``, ``out`` or ``in``.
    """

    def __init__(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`args` are without the object that the method was called on."""
        self.form = FORMS[METHODS[method]]
        self._method = method
        self._args = args
        self._kwargs = kwargs

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The tensors given for one of the arguments of the form."""
        return list(tensors_in(self._value(list(self.form.modes).index(name), name)))

    def tensor_arguments(self) -> list[Any]:
        """The arguments of the form as they were given. Raises TypeError where one was not."""
        values = [self._value(place, name) for place, name in enumerate(self.form.modes)]
        if any(value is None for value in values):
            raise TypeError(f"{self._method}(): incompatible function arguments")
        return values

    def other_keywords(self) -> dict[str, Any]:
        """The keywords that are not for tensors."""
        begins = [name[:2] for name in self.form.modes]
        return {key: value for key, value in self._kwargs.items() if _begin(key) not in begins}

    def _value(self, place: int, name: str) -> Any:
        if place < len(self._args):
            return self._args[place]
        named = (value for key, value in self._kwargs.items() if _begin(key) == name[:2])
        return next(named, None)

    @property
    def root(self) -> int:
        """The root's rank."""
        options = self._next("opts", "root")
        root = getattr(options, "rootRank", options)
        return root if isinstance(root, int) else 0

    @property
    def peer(self) -> int | None:
        """The other rank of a message."""
        return self._next("dstRank", "srcRank") if self._method in ("send", "recv") else None

    @property
    def device(self) -> int | None:
        """The device that the options of a barrier ask for."""
        options = self._next("opts")
        device = getattr(options, "device", None)
        if device is not None:
            return int(device.index)
        return next(iter(getattr(options, "device_ids", ())), None)

    def _next(self, *names: str) -> Any:
        """The argument behind the tensors, by place or by name."""
        place = len(self.form.modes)
        if place < len(self._args):
            return self._args[place]
        return next((self._kwargs[name] for name in names if name in self._kwargs), None)


def _begin(keyword: str) -> str:
    """What a keyword begins with; nothing for sizes, which are no tensors."""
    return "" if keyword.endswith("sizes") else keyword[:2]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: one, a list, or a list of lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
