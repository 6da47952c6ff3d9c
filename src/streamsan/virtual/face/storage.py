"""Untyped storages of the virtual devices: resizing, copying, saving and loading them.

torch cannot give a CPU storage other memory, so a storage that is resized keeps the pointer it
was born with, and `Tensors.moved` says where its bytes are now.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

import torch

from streamsan.model.records import Access, CopyKind, Mode, OpKind
from streamsan.virtual.devices import Live
from streamsan.virtual.face.tensors import native_pointer
from streamsan.virtual.streams import Stream

if TYPE_CHECKING:
    from streamsan.virtual.face.state import Face


class Storages:
    """Storages of one virtual machine."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._gpu = face.gpu
        self._tensors = face.tensors
        self._live: dict[int, Live] = {}
        self._ends: dict[int, Any] = {}

    def owner(self, storage: torch.UntypedStorage) -> int:
        """Device index of a storage, PINNED, or NOWHERE."""
        return self._gpu.memory.owner(native_pointer(storage))

    def place(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        """Address and size in bytes of a storage now."""
        moved = self._tensors.moved.get(storage._cdata)
        if moved is not None:
            return moved
        pointer = native_pointer(storage)
        size = _native_nbytes(storage)
        return pointer, 0 if pointer in self._nowhere() else size

    def _nowhere(self) -> tuple[int, ...]:
        return tuple(device.start for device in self._gpu.memory.devices)

    def resize(self, storage: torch.UntypedStorage, size: int) -> None:
        """Give a storage `size` bytes: the old block is freed, the bytes that fit are kept."""
        owner = self.owner(storage)
        with self._gpu.monitor:
            address, old = self.place(storage)
            if size == old:
                return
            key = storage._cdata
            stream = self._gpu.current_stream(owner)
            live = self._gpu.allocate(owner, size, stream) if size else None
            kept = min(old, size)
            if live is not None and kept:
                self._keep(owner, stream, live.block.address, address, kept)
            previous = self._live.pop(key, None) or self._gpu.live.get(address if old else 0)
            self._watch(storage, key, previous)
            if previous is not None:
                self._tensors.disown(previous.number)
                self._gpu.drop(previous)
            null = self._gpu.memory.devices[owner].start
            self._tensors.moved[key] = (live.block.address if live else null, size)
            if live is not None:
                self._live[key] = live

    def _keep(self, owner: int, stream: Stream, target: int, source: int, size: int) -> None:
        """Copy what a storage keeps to its new memory, on the current stream."""
        self._gpu.submit(stream, lambda: _move(target, source, size))
        accesses = (
            Access(owner, source, size, (), (), int(Mode.READ), "self"),
            Access(owner, target, size, (), (), int(Mode.WRITE), "self"),
        )
        self._face.executor.emit(
            int(OpKind.COPY),
            "aten::resize_",
            stream,
            accesses,
            int(CopyKind.DEVICE_TO_DEVICE),
        )

    def _watch(self, storage: torch.UntypedStorage, key: int, born: Live | None) -> None:
        """Free the memory of a moved storage when the storage, and so its first buffer, dies."""
        if key in self._ends:
            return
        buffer = self._tensors.buffer(born.number if born is not None else -key)
        if buffer is not None:
            self._ends[key] = weakref.ref(buffer, lambda _: self._gone(key))

    def _gone(self, key: int) -> None:
        self._ends.pop(key, None)
        self._tensors.moved.pop(key, None)
        live = self._live.pop(key, None)
        if live is not None:
            self._gpu.drop(live)

    def resize_tensor(
        self, tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """Give a device tensor another layout, and more memory where it needs it."""
        needed = _needed(sizes, strides, int(tensor.storage_offset())) * tensor.itemsize
        storage = tensor.untyped_storage()
        address, size = self.place(storage)
        if needed > size:
            result = self._tensors.new(self.owner(storage), tensor.dtype, sizes, strides)
            kept = min(size, needed)
            stream = self._gpu.current_stream(self.owner(storage))
            target = native_pointer(result.untyped_storage())
            if kept:
                self._keep(self.owner(storage), stream, target, address, kept)
            return tensor.set_(result.untyped_storage(), tensor.storage_offset(), sizes, strides)
        return tensor.set_(storage, tensor.storage_offset(), sizes, strides)

    def to_host(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """A host copy of a device storage (blocking)."""
        address, size = self.place(storage)
        owner = self.owner(storage)
        flat = self._tensors.view((address, torch.uint8, (size,), (1,), 0))
        result = torch.empty(size, dtype=torch.uint8)
        if size:
            self._copy(result, flat, owner)
        return result.untyped_storage()

    def _copy(self, target: torch.Tensor, source: torch.Tensor, owner: int) -> None:
        from streamsan.virtual.face.below import Below

        with Below():
            self._face.copier.copy(target, source, non_blocking=False)

    def to_device(self, storage: torch.UntypedStorage, device: int) -> torch.UntypedStorage:
        """A copy of a host storage on a device (blocking)."""
        size = storage.nbytes()
        result = self.empty(size, device)
        if size:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            target = self._tensors.view((native_pointer(result), torch.uint8, (size,), (1,), 0))
            self._copy(target, flat, device)
        return result

    def empty(self, size: int, device: int) -> torch.UntypedStorage:
        """A storage of `size` bytes on a device, uninitialised."""
        with self._gpu.monitor:
            return self._tensors.new(device, torch.uint8, (size,), (1,)).untyped_storage()

    def clone(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """A copy of a device storage on its device."""
        address, size = self.place(storage)
        owner = self.owner(storage)
        result = self.empty(size, owner)
        if size:
            source = self._tensors.view((address, torch.uint8, (size,), (1,), 0))
            target = self._tensors.view((native_pointer(result), torch.uint8, (size,), (1,), 0))
            from streamsan.virtual.face.below import Below
            from streamsan.virtual.face.schema import PLANS

            op = torch.ops.aten.copy_.default
            with Below():
                self._face.executor.compute(
                    PLANS[op],
                    (target, source),
                    {},
                    [(target, owner, 2, "self"), (source, owner, 1, "src")],
                    owner,
                )
        return result


_native_nbytes = torch.UntypedStorage.nbytes


def _move(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size)


def _needed(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> int:
    if 0 in sizes:
        return 0
    return offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
