"""Operators of the host on pinned memory: they run at once, as accesses of their thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model.records import Mode, OpKind
from streamsan.virtual.face.exports import Exports
from streamsan.virtual.face.schema import Operand, Plan, operands
from streamsan.virtual.memory import PINNED
from streamsan.virtual.observer import tells

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face


class Host:
    """Host accesses of one virtual machine."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self.observer = face.gpu.observer
        self.exports = Exports(face.gpu.observer)

    def run(self, plan: Plan, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that touches host memory only."""
        found = operands(plan, self._face.tensors.owner, args, kwargs)
        pinned = [operand for operand in found if operand[1] == PINNED]
        if not pinned:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        self.touch(pinned, plan.name)
        return result

    @tells
    def exported(self, tensor: torch.Tensor, array: Any) -> None:
        """NumPy shares the memory of a pinned tensor."""
        access = self._face.tensors.access(tensor, PINNED, int(Mode.READ), "self")
        if access is not None:
            self.exports.add(array, access)

    @tells
    def touch(self, found: Sequence[Operand], name: str) -> None:
        """Report accesses of the calling thread to pinned memory."""
        observer = self.observer
        accesses = tuple(
            access
            for tensor, owner, mode, argument in found
            if mode
            if (access := self._face.tensors.access(tensor, owner, mode, argument)) is not None
        )
        if accesses:
            with self._face.gpu.monitor:
                observer.operation(int(OpKind.HOST), name, observer.thread(), accesses)

    def new_pinned(self, like: torch.Tensor) -> torch.Tensor:
        """A pinned tensor with the layout and the values of a host tensor."""
        with self._face.gpu.monitor:
            result = self._face.tensors.new(
                PINNED,
                like.dtype,
                tuple(like.shape),
                like.stride(),
                like.untyped_storage().nbytes() if like.storage_offset() == 0 else None,
            )
            if result.numel():
                result.copy_(like)
        return result
