"""What the operators of ``torch.ops.c10d`` do with their tensors: their schemas do not say.

``torch.distributed`` calls its backends through these operators (c10d/Ops.cpp), the reducer of
DistributedDataParallel and the functional collectives in C++ too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload

from streamsan.model.records import Mode

LIBRARY = "c10d"
"""The namespace of the operators."""

_R, _W, _RW = int(Mode.READ), int(Mode.WRITE), int(Mode.READ_WRITE)


@dataclass(frozen=True)
class Form:
    """A collective: its name in reports, and how it touches its tensor arguments.

    `modes` are those of every rank, or of the root alone where `others` gives those of all others.
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
