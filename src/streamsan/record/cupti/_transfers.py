"""Copies and fills that other libraries make, by rules C1 to C6."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from streamsan.model import records as r
from streamsan.record.cupti._calls import DEVICE, HOST, Place, Transfer

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder

_MEMORY_TYPE = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
_PAGEABLE = -2
"""The space of host memory that the driver does not know: nobody else reads or writes it."""


class Transfers:
    """Tells the recorder of copies and fills."""

    def __init__(self, recorder: CudaRecorder, driver: Any) -> None:
        """`driver` is CUDA's driver library."""
        self._recorder, self._driver = recorder, driver

    def report(self, call: Transfer, device: int, timeline: int, sure: int) -> None:
        """A copy or a fill has been enqueued; the form that blocks the host has done so."""
        to = self._space(call.target, device)
        of = to if call.source is None else self._space(call.source, device)
        target = _access(call.target, to, r.Mode.WRITE, "target", sure)
        if call.source is None:
            self._fill(call, to, target, timeline)
            return
        source = _access(call.source, of, r.Mode.READ, "source", sure)
        accesses = tuple(access for access in (source, target) if access is not None)
        if to < 0 and of < 0:
            if accesses:
                self._operation(r.OpKind.HOST, self._recorder.observer.thread(), accesses)
            return
        kind = _copy_kind(of, to)
        self._operation(r.OpKind.COPY, timeline, accesses, kind)
        waits = call.blocking and kind in (r.CopyKind.HOST_TO_DEVICE, r.CopyKind.DEVICE_TO_HOST)
        if waits or kind == r.CopyKind.DEVICE_TO_PAGEABLE:
            self._synchronized(timeline)

    def _fill(self, call: Transfer, to: int, target: r.Access | None, timeline: int) -> None:
        """Rule C6: asynchronous, but for the blocking form on pinned memory."""
        if target is not None:
            self._operation(r.OpKind.FILL, timeline, (target,))
        if call.blocking and to == r.HOST:
            self._synchronized(timeline)

    def _operation(
        self,
        kind: r.OpKind,
        timeline: int,
        accesses: tuple[r.Access, ...],
        copy: r.CopyKind = r.CopyKind.NONE,
    ) -> None:
        name = r.FOREIGN + ("memset" if kind == r.OpKind.FILL else "memcpy")
        self._recorder.operation(int(kind), name, timeline, accesses, int(copy))

    def _synchronized(self, timeline: int) -> None:
        observer = self._recorder.observer
        observer.emit(r.StreamSync(timeline, observer.thread(), self._recorder.stack()))

    def _space(self, place: Place, device: int) -> int:
        """The address space of one end: a device's, that of pinned memory, or pageable."""
        if place.kind == DEVICE:
            return device
        kind = ctypes.c_uint()
        status = self._driver.cuPointerGetAttribute(
            ctypes.byref(kind), _MEMORY_TYPE, ctypes.c_uint64(place.address)
        )
        if status or not kind.value:
            return _PAGEABLE
        return r.HOST if kind.value == HOST else device


def _copy_kind(of: int, to: int) -> r.CopyKind:
    if of >= 0 and to >= 0:
        return r.CopyKind.DEVICE_TO_DEVICE
    if to >= 0:
        pinned = of == r.HOST
        return r.CopyKind.HOST_TO_DEVICE if pinned else r.CopyKind.PAGEABLE_TO_DEVICE
    return r.CopyKind.DEVICE_TO_HOST if to == r.HOST else r.CopyKind.DEVICE_TO_PAGEABLE


def _access(place: Place, space: int, mode: r.Mode, argument: str, sure: int) -> r.Access | None:
    if space == _PAGEABLE or not place.width or not place.rows:
        return None
    if place.rows == 1 or place.pitch == place.width:
        return r.Access(
            space, place.address, place.width * place.rows, (), (), int(mode), argument, sure
        )
    rows, pitch = (place.rows,), (place.pitch,)
    return r.Access(space, place.address, place.width, rows, pitch, int(mode), argument, sure)
