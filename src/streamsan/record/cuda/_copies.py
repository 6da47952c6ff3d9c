"""Copies between host and device memory, as the CUDA recorder reports them (rules C1 to C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamsan.model import records as r
from streamsan.record import _core
from streamsan.record._portable import UNKNOWN
from streamsan.record.cuda._operators import Arguments, Keywords, stack_inside
from streamsan.virtual.face.copies import copy_kind, same_layout
from streamsan.virtual.face.schema import Operand, Plan
from streamsan.virtual.memory import PINNED

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_READ, _WRITE = int(r.Mode.READ), int(r.Mode.WRITE)
_COPY, _HOST = int(r.OpKind.COPY), int(r.OpKind.HOST)
_ON_DEVICE = int(r.CopyKind.DEVICE_TO_DEVICE)


class Copy:
    """Reports one of the operators that copy, ``copy_`` and ``_to_copy``."""

    def __init__(self, recorder: CudaRecorder, plan: Plan) -> None:
        self.stack = stack_inside(plan)
        self._name = plan.name
        self._in_place = plan.name == "aten::copy_"
        self._recorder = recorder
        self._streams = recorder.streams
        self._touching = recorder.touching

    def before(self, args: Arguments, kwargs: Keywords, accesses: list[r.Access]) -> bool:
        """Note the node that the copy makes."""
        tensors = (arg for arg in args[: 1 + self._in_place] if isinstance(arg, torch.Tensor))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            self._recorder.nodes.note()
        return True

    def after(
        self, before: bool, result: Any, args: Arguments, kwargs: Keywords, accesses: list[r.Access]
    ) -> None:
        """Report the copy."""
        ends = self._ends(result, args)
        if ends is not None and ends[0].is_cuda and ends[1].is_cuda:
            target, source = ends
            of = self._touching.touch(source, _READ, "src", accesses)
            to = self._touching.touch(target, _WRITE, "self", accesses)
            if of == to >= 0:
                stream = self._streams.current(to)
                self._recorder.operation(_COPY, "aten::copy_", stream, accesses, _ON_DEVICE)
                return
        self.between(result, args, kwargs)

    def _ends(self, result: Any, args: Arguments) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Where it goes and where it comes from; None where it goes to no memory.

        Tensors without memory may be shown as None, and so may numbers that torch takes for
        tensors: those are memory of the host.
        """
        target, source = (args[0], args[1]) if self._in_place else (result, args[0])
        if not isinstance(target, torch.Tensor) or target.is_meta:
            return None
        if not isinstance(source, torch.Tensor):
            source = torch.scalar_tensor(0, device="cpu")
        return target, source

    def compiled(self) -> _core.Operator | None:
        """As the compiled core does it: copies within a device; others are left to `between`."""
        places = [(1, "src", _READ), (0, "self", _WRITE)] if self._in_place else [(0, "src", _READ)]
        return _core.Operator(
            reported=self,
            places=places,
            updating=places,
            training=None,
            kind=_COPY,
            name="aten::copy_",
            copy=_ON_DEVICE,
            result="self",
            fresh=not self._in_place,
            shares=self.stack == UNKNOWN,
            synchronizes=False,
            uninitialized=False,
            copies=len(places),
        )

    def between(self, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """Report a copy of any sort."""
        ends = self._ends(result, args)
        positional = self._in_place and len(args) > 2
        non_blocking = args[2] if positional else kwargs.get("non_blocking", False)
        if ends is not None:
            self._between(*ends, bool(non_blocking))

    def _between(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        """A copy from one memory to another, or within the host's."""
        recorder = self._recorder
        for tensor, other in ((target, source), (source, target)):
            if other.is_cuda and not tensor.is_cuda:
                recorder.blocks.pinned.check(tensor)
        to, of = recorder.owner(target), recorder.owner(source)
        ends: list[Operand] = [(source, of, _READ, "src"), (target, to, _WRITE, "self")]
        if to < 0 and of < 0:
            accesses = recorder.accesses(ends)
            if accesses:
                recorder.operation(_HOST, self._name, recorder.observer.thread(), accesses)
            return
        host, other = (target, source) if to < 0 else (source, target)
        kind = copy_kind(of, to, same_layout(host, other))
        stream = self._streams.current(of if kind == r.CopyKind.PEER else max(to, of))
        if kind == r.CopyKind.PEER:
            self._streams.order(self._streams.current(to), stream)
        if kind == r.CopyKind.PAGEABLE_TO_DEVICE and of == PINNED:
            accesses = recorder.accesses(ends[:1])
            recorder.operation(_HOST, self._name, recorder.observer.thread(), accesses)
        accesses = recorder.accesses(_device_ends(kind, ends))
        recorder.operation(_COPY, "aten::copy_", stream, accesses, kind)
        self._settle(kind, stream, host, to, non_blocking)

    def _settle(
        self, kind: int, stream: int, host: torch.Tensor, to: int, non_blocking: bool
    ) -> None:
        if kind == r.CopyKind.PEER:
            self._streams.order(stream, self._streams.current(to))
        elif kind == r.CopyKind.DEVICE_TO_DEVICE:
            return
        elif kind == r.CopyKind.DEVICE_TO_PAGEABLE or not non_blocking:
            self._recorder.synchronized(stream)
        elif kind in (r.CopyKind.HOST_TO_DEVICE, r.CopyKind.DEVICE_TO_HOST):
            self._recorder.blocks.record_stream(host, stream, explicit=False)


def _device_ends(kind: int, ends: list[Operand]) -> list[Operand]:
    """The ends of a copy that its transfer touches: pageable memory is staged by the host."""
    if kind == r.CopyKind.PAGEABLE_TO_DEVICE:
        return ends[1:]
    return ends[:1] if kind == r.CopyKind.DEVICE_TO_PAGEABLE else ends
