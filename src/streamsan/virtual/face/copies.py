"""Copies between host and device memory, with what the host may rely on (rules C1 to C8)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from streamsan.allocator.contract import OutOfMemory
from streamsan.model.records import Access, CopyKind, Mode, OpKind
from streamsan.virtual.face.below import Below
from streamsan.virtual.face.execute import out_of_memory
from streamsan.virtual.face.schema import PLANS
from streamsan.virtual.memory import NOWHERE, PINNED
from streamsan.virtual.streams import Stream

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face

_COPY = torch.ops.aten.copy_.default
_TO_COPY = torch.ops.aten._to_copy.default

CAPTURED_COPY = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is"
    " pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
)
"""What torch says to such a copy; the capture goes on."""


def copy_kind(source: int, target: int, direct: bool) -> int:
    """The kind of a copy between two owners. Pinned memory is copied from and to directly only
    where its layout allows; otherwise the host packs or unpacks it, as with pageable memory.
    """
    if source >= 0 and target >= 0:
        return int(CopyKind.DEVICE_TO_DEVICE if source == target else CopyKind.PEER)
    if source >= 0:
        pinned = target == PINNED and direct
        return int(CopyKind.DEVICE_TO_HOST if pinned else CopyKind.DEVICE_TO_PAGEABLE)
    pinned = source == PINNED and direct
    return int(CopyKind.HOST_TO_DEVICE if pinned else CopyKind.PAGEABLE_TO_DEVICE)


class Copier:
    """Copies of one virtual machine."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._gpu = face.gpu
        self._tensors = face.tensors

    def to(
        self,
        source: torch.Tensor,
        target: int,
        dtype: torch.dtype,
        non_blocking: bool,
        memory_format: torch.memory_format | None,
    ) -> torch.Tensor:
        """A copy of `source` in another memory (`target`: device index or NOWHERE, the host)."""
        owner = self._tensors.owner(source)
        layout = torch.empty_like(
            source, dtype=dtype, device="meta", memory_format=memory_format or torch.preserve_format
        )
        sizes, strides = tuple(layout.shape), layout.stride()
        with self._gpu.monitor:
            if target == NOWHERE and not (owner >= 0 and non_blocking):
                result = torch.empty_strided(sizes, strides, dtype=dtype)
            else:  # a non-blocking download goes to pinned memory, as in PyTorch's _to_copy
                place = PINNED if target == NOWHERE else target
                try:
                    result = self._tensors.new(place, dtype, sizes, strides)
                except OutOfMemory as error:
                    raise out_of_memory(error, target) from None
            self.copy(result, source, non_blocking)
        return result

    def copy(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        """``target.copy_(source)`` where at least one of the two is on a device."""
        if source.is_meta:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        to, of = self._tensors.owner(target), self._tensors.owner(source)
        device = to if to >= 0 else of
        if target.numel() == 0:
            return
        source = source.expand_as(target) if source.shape != target.shape else source
        host_side = target if to < 0 else source
        kind = copy_kind(of, to, same_layout(host_side, source if to < 0 else target))
        stream = self._gpu.current_stream(of if kind == CopyKind.PEER else device)
        if stream.capture is not None and NOWHERE in (to, of):
            raise RuntimeError(CAPTURED_COPY)
        waits = not non_blocking or kind == CopyKind.DEVICE_TO_PAGEABLE
        if waits and kind not in (CopyKind.DEVICE_TO_DEVICE, CopyKind.PEER):
            self._gpu.refuse_capture()
        with self._gpu.monitor:
            if kind == CopyKind.PEER:
                self._order(self._gpu.current_stream(to), stream)
            self._move(kind, target, source, to, of, stream)
            self._face.executor.emit(
                int(OpKind.COPY),
                "aten::copy_",
                stream,
                self._touched(kind, target, source, to, of),
                kind,
            )
            self._settle(kind, target, source, to, of, stream, non_blocking)

    def _order(self, first: Stream, then: Stream) -> None:
        """Rule C8: later work of `then` comes after all work of `first`."""
        event = self._gpu.new_event()
        self._gpu.record(event, first)
        self._gpu.wait(then, event)

    def _touched(
        self, kind: int, target: torch.Tensor, source: torch.Tensor, to: int, of: int
    ) -> tuple[Access, ...]:
        found = []
        if kind != CopyKind.PAGEABLE_TO_DEVICE:
            found.append(self._tensors.access(source, of, Mode.READ, "src"))
        if kind != CopyKind.DEVICE_TO_PAGEABLE:
            found.append(self._tensors.access(target, to, Mode.WRITE, "self"))
        return tuple(access for access in found if access is not None)

    def _move(
        self,
        kind: int,
        target: torch.Tensor,
        source: torch.Tensor,
        to: int,
        of: int,
        stream: Stream,
    ) -> None:
        """Enqueue the transfer. What is pageable is staged now, or taken when the host waits."""
        place = self._tensors.spec
        view = self._tensors.view
        if kind == CopyKind.PAGEABLE_TO_DEVICE:
            if of == PINNED:
                self._face.host.touch([(source, PINNED, int(Mode.READ), "src")], "aten::copy_")
            spec = place(target)
            if self._gpu.runs_at_once(stream) and stream.capture is None:
                view(spec).copy_(source)
                return
            staged = source.clone()
            self._gpu.submit(stream, _copy_work(lambda: view(spec), lambda: staged))
        elif kind == CopyKind.DEVICE_TO_PAGEABLE:
            spec = place(source)
            self._gpu.submit(stream, _copy_work(lambda: target, lambda: view(spec)))
        else:
            destination, origin = place(target), place(source)
            self._gpu.submit(stream, _copy_work(lambda: view(destination), lambda: view(origin)))

    def _settle(
        self,
        kind: int,
        target: torch.Tensor,
        source: torch.Tensor,
        to: int,
        of: int,
        stream: Stream,
        non_blocking: bool,
    ) -> None:
        """What follows a copy: the host waits (C2, C4, C7), or the pinned block is guarded (M5)."""
        if kind == CopyKind.PEER:
            self._order(stream, self._gpu.current_stream(to))
        elif kind == CopyKind.DEVICE_TO_DEVICE:
            return
        elif kind == CopyKind.DEVICE_TO_PAGEABLE or not non_blocking:
            self._gpu.sync_stream(stream)
            if kind == CopyKind.DEVICE_TO_PAGEABLE and to == PINNED:
                self._face.host.touch([(target, PINNED, int(Mode.WRITE), "self")], "aten::copy_")
        elif kind in (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST):
            pinned = source if kind == CopyKind.HOST_TO_DEVICE else target
            self._gpu.record_stream(pinned.untyped_storage().data_ptr(), stream, explicit=False)

    def raw(self, target: int, source: int, size: int, owner: int) -> None:
        """Copy bytes of a storage after the owner's current stream is done (blocking)."""
        if owner >= 0:
            self._gpu.sync_stream(self._gpu.current_stream(owner))
        ctypes.memmove(target, source, size)


def same_layout(host: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a host tensor is copied as it lies (Copy.cu: same layout on both sides). Others than
    strided ones are copied by their parts.
    """
    if not host.layout == other.layout == torch.strided:
        return False
    return host.is_contiguous() or host.stride() == other.stride()


def _copy_work(target: Any, source: Any) -> Any:
    def work() -> None:
        with Below():
            target().copy_(source())

    return work


def with_tensors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a copy; numbers, which torch takes for tensors of the host, become such."""
    ends = (arg if isinstance(arg, torch.Tensor) else _TO_COPY(arg) for arg in args[:2])
    return (*ends, *args[2:])


def copy_handler(face: Face, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``copy_`` and ``_to_copy`` as the dispatcher hands them over."""
    tensors = face.tensors
    if func is _TO_COPY:
        source = args[0]
        owner = tensors.owner(source)
        device = kwargs.get("device")
        if device is not None and device.type == "meta":
            return func(*args, **kwargs)
        target = (
            face.device_index(device) if device is not None and device.type == "cuda" else owner
        )
        dtype = kwargs.get("dtype") or source.dtype
        if target == owner and owner >= 0:
            options = {k: v for k, v in kwargs.items() if k in ("dtype", "memory_format")}
            plan = PLANS[_TO_COPY]
            return face.executor.compute(
                plan, (source,), options, [(source, owner, int(Mode.READ), "self")], owner
            )
        if target < 0:
            return face.host.run(PLANS[_TO_COPY], func, args, {**kwargs, "device": None})
        return face.copier.to(
            source, target, dtype, bool(kwargs.get("non_blocking")), kwargs.get("memory_format")
        )
    target_tensor, source = args[0], args[1]
    if target_tensor.is_meta:
        return func(*args, **kwargs)
    to, of = tensors.owner(target_tensor), tensors.owner(source)
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if to < 0 and of < 0:
        return face.host.run(PLANS[_COPY], func, args, kwargs)
    if to == of:
        found = [(target_tensor, to, int(Mode.WRITE), "self"), (source, of, int(Mode.READ), "src")]
        return face.executor.compute(PLANS[_COPY], args[:2], {}, found, to)
    face.copier.copy(target_tensor, source, non_blocking)
    return target_tensor
