"""Collectives as what goes from rank to rank, and what becomes of it.

`Step` is one collective seen from one rank: the tensor that it sends to each rank, and the tensor
into which it puts what comes from each. With a reduction all that comes goes into one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from streamsan.model.records import Mode
from streamsan.virtual.face.below import Below
from streamsan.virtual.face.nccl.transport import EMPTY
from streamsan.virtual.face.schema import Operand
from streamsan.virtual.face.tensors import Spec, Tensors

Places = Sequence["torch.Tensor | None"]
"""A tensor for each rank of the group, or None for a rank that nothing goes to or comes from."""

_KINDS: Any = ReduceOp.RedOpType
_UNSUPPORTED = {_KINDS.BAND: "BAND", _KINDS.BOR: "BOR", _KINDS.BXOR: "BXOR"}


@dataclass
class Step:
    """One collective of one rank. `reduction` is None where nothing is reduced; `message` is
    whether only the ranks at its two ends take part.
    """

    sends: Places
    receives: Places
    reduction: ReduceOp | None = None
    message: bool = False

    def outline(self, tensors: Tensors) -> Outline:
        """The same by address."""

        def place(values: Places) -> list[Spec | None]:
            return [None if value is None else tensors.spec(value) for value in values]

        return Outline(
            tensors, place(self.sends), place(self.receives), self.reduction, self.message
        )


def operands(steps: Sequence[Step], tensors: Tensors) -> list[Operand]:
    """The tensors that steps touch, each once, with their owners and modes."""
    found: dict[int, tuple[torch.Tensor, int]] = {}
    for step in steps:
        for places, mode in ((step.sends, Mode.READ), (step.receives, Mode.WRITE)):
            for tensor in places:
                if tensor is not None and tensor.numel():
                    known = found.get(id(tensor), (tensor, 0))
                    found[id(tensor)] = (tensor, known[1] | int(mode))
    return [
        (tensor, tensors.owner(tensor), mode, "input" if mode == Mode.READ else "output")
        for tensor, mode in found.values()
    ]


class Outline:
    """A step by address: it keeps no tensor, as a kernel keeps none."""

    def __init__(
        self,
        tensors: Tensors,
        sends: list[Spec | None],
        receives: list[Spec | None],
        reduction: ReduceOp | None,
        message: bool,
    ) -> None:
        self.message = message
        self._view = tensors.view
        self._sends = sends
        self._receives = receives
        self._reduction = reduction

    def taken(self) -> list[torch.Tensor]:
        """The bytes for each rank, as they are now."""
        with Below():
            return [EMPTY if spec is None else _bytes(self._view(spec)) for spec in self._sends]

    @property
    def targets(self) -> list[int]:
        """The ranks that get something."""
        return [rank for rank, spec in enumerate(self._sends) if spec is not None and _size(spec)]

    @property
    def sizes(self) -> list[int]:
        """How many bytes come from each rank."""
        return [0 if spec is None else _size(spec) for spec in self._receives]

    def put(self, received: Sequence[torch.Tensor]) -> None:
        """Write the outputs from the bytes of each rank."""
        with Below():
            arrived = [
                (self._view(spec), data.view(spec[1]).view(spec[2]))
                for spec, data in zip(self._receives, received)
                if spec is not None
            ]
            if self._reduction is None:
                for target, value in arrived:
                    target.copy_(value)
            elif arrived:
                arrived[0][0].copy_(reduce(self._reduction, [value for _, value in arrived]))


def _size(spec: Spec) -> int:
    count = 1
    for size in spec[2]:
        count *= size
    return count * spec[1].itemsize


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor in order, as a copy of bytes."""
    flat = tensor.resolve_conj().resolve_neg().reshape(-1).clone()
    return flat.view(torch.uint8)


def check_reduction(reduction: ReduceOp) -> None:
    """Raise for what NCCL does not reduce by."""
    name = _UNSUPPORTED.get(_kind(reduction))
    if name:
        raise ValueError(f"Cannot use ReduceOp.{name} with NCCL")


def _kind(reduction: Any) -> Any:
    return getattr(reduction, "op", reduction)


def reduce(reduction: ReduceOp, values: list[torch.Tensor]) -> torch.Tensor:
    """All values as one, in the order of the ranks: every rank gets the same bits."""
    kind = _kind(reduction)
    if kind == _KINDS.PREMUL_SUM:
        state: Any = reduction.__getstate__()
        values = [value * state[1] for value in values]
    result = values[0].clone()
    for value in values[1:]:
        if kind == _KINDS.PRODUCT:
            result.mul_(value)
        elif kind == _KINDS.MIN:
            torch.minimum(result, value, out=result)
        elif kind == _KINDS.MAX:
            torch.maximum(result, value, out=result)
        elif value.dtype == torch.bool:
            result.logical_or_(value)
        else:
            result.add_(value)
    if kind == _KINDS.AVG:
        mode = None if result.dtype.is_floating_point or result.dtype.is_complex else "trunc"
        result = result.div_(len(values), rounding_mode=mode)
    return result
