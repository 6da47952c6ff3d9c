"""Tensors of the virtual machine: CPU tensors whose storage is a slice of its memory.

Such a tensor is an ordinary one to torch. It frees its block exactly when its storage dies,
since the storage holds the buffer object whose end is watched.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import torch

from streamsan.model.extent import canonical
from streamsan.model.records import HOST, Access
from streamsan.virtual.devices import Live
from streamsan.virtual.face.transforms import stands_for
from streamsan.virtual.gpu import Gpu
from streamsan.virtual.memory import NOWHERE, PINNED

Spec = tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...], int]
"""Where a tensor's bytes are, and how they are read: address of element 0, dtype, sizes, strides
(in elements), and whether the values are conjugated (CONJUGATE) or negated (NEGATIVE) on reading.
"""

CONJUGATE, NEGATIVE = 1, 2

native_pointer = torch.UntypedStorage.data_ptr
"""Where torch believes the bytes of a storage to be."""


class Tensors:
    """Makes and recognises tensors of one virtual machine.

    `moved` maps storages (by their C++ address) that were resized to the address and size in
    bytes of the memory they have now; their data pointer is that of their first block.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.moved: dict[int, tuple[int, int]] = {}
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._types: dict[int, Any] = {}
        self._views: dict[torch.dtype, torch.Tensor] = {}
        memory = gpu.memory
        self._base = memory.base
        self._whole = torch.frombuffer(memory._mapping, dtype=torch.uint8)

    # -- recognising ------------------------------------------------------------------------------

    def storage_address(self, tensor: torch.Tensor) -> int:
        """Address of a tensor's storage; 0 where it has none."""
        try:
            return native_pointer(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError):  # sparse, and wrappers without a storage
            return 0

    def owner(self, tensor: torch.Tensor) -> int:
        """Device index of a tensor, PINNED, or NOWHERE."""
        try:
            address = tensor.data_ptr()
        except (NotImplementedError, RuntimeError):
            inner = stands_for(tensor)
            return NOWHERE if inner is None else self.owner(inner)
        if not address:
            address = self.storage_address(tensor)
        return self.gpu.memory.owner(address)

    def address(self, tensor: torch.Tensor) -> int:
        """Address of element 0, also where the storage has moved."""
        address = tensor.data_ptr()
        if self.moved:
            storage = tensor.untyped_storage()
            moved = self.moved.get(storage._cdata)
            if moved is not None:
                return moved[0] + int(tensor.storage_offset()) * tensor.itemsize
        return address

    def spec(self, tensor: torch.Tensor) -> Spec:
        """Where the bytes of `tensor` are."""
        sizes = tuple(tensor.shape)
        return (self.address(tensor), tensor.dtype, sizes, tensor.stride(), bits(tensor))

    def access(self, tensor: torch.Tensor, owner: int, mode: int, argument: str) -> Access | None:
        """The bytes of `tensor` as an access, or None where it has none."""
        extent = canonical(
            self.address(tensor), tensor.itemsize, tuple(tensor.shape), tensor.stride()
        )
        if extent is None:
            return None
        return Access(HOST if owner == PINNED else owner, *extent, mode, argument)

    # -- making -----------------------------------------------------------------------------------

    def view(self, spec: Spec) -> torch.Tensor:
        """A tensor over the bytes of `spec`, which keeps nothing alive."""
        address, dtype, sizes, strides, flags = spec
        whole = self._views.get(dtype)
        if whole is None:
            with torch.inference_mode(False):  # it outlives the mode of the moment
                whole = self._views[dtype] = self._whole.view(dtype)
        offset = 0 if 0 in sizes else (address - self._base) // dtype.itemsize
        return with_bits(torch.as_strided(whole, sizes, strides, offset), flags)

    def alone(self, spec: Spec) -> torch.Tensor:
        """The same with a storage of its own, of no more bytes than it needs."""
        address, dtype, sizes, strides, flags = spec
        size = storage_bytes(dtype, sizes, strides)
        if not size:
            return torch.empty_strided(sizes, strides, dtype=dtype)
        flat = torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)
        return with_bits(flat.as_strided(sizes, strides), flags)

    def wrap(
        self,
        live: Live | None,
        owner: int,
        size: int,
        dtype: torch.dtype,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int = 0,
    ) -> torch.Tensor:
        """A tensor that owns `live` (or, of no bytes, nothing) and frees it at its end."""
        memory = self.gpu.memory
        if live is None:
            ranges = memory.pinned if owner == PINNED else memory.devices[owner]
            address, size = ranges.start, dtype.itemsize
        else:
            address = live.block.address
        kind = self._types.get(size)
        if kind is None:
            kind = self._types[size] = ctypes.c_char * size
        buffer = kind.from_address(address)
        storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
        if live is not None:
            self._watch(buffer, live)
        else:
            self._watched[-storage._cdata] = weakref.ref(buffer)
        result: torch.Tensor = torch.empty(0, dtype=dtype)
        return result.set_(storage, offset, sizes, strides)

    def _watch(self, buffer: Any, live: Live) -> None:
        number = live.number
        watched, drop = self._watched, self.gpu.drop

        def gone(_: weakref.ref[Any]) -> None:
            if watched.pop(number, None) is not None:
                drop(live)

        watched[number] = weakref.ref(buffer, gone)

    def buffer(self, number: int) -> Any:
        """The buffer of the block `number`, or of the storage `-number` born without bytes."""
        watched = self._watched.get(number)
        return None if watched is None else watched()

    def disown(self, number: int) -> None:
        """Forget the block `number`: somebody else frees it from now on."""
        self._watched.pop(number, None)

    def new(
        self,
        owner: int,
        dtype: torch.dtype,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        size: int | None = None,
        offset: int = 0,
    ) -> torch.Tensor:
        """A fresh tensor on a device (on its current stream) or in pinned memory, uninitialised.

        `size` is that of the storage in bytes, by default what sizes and strides need.
        """
        if size is None:
            size = storage_bytes(dtype, sizes, strides)
        if not size:
            return self.wrap(None, owner, 0, dtype, sizes, strides)
        if owner == PINNED:
            live = self.gpu.allocate_pinned(size)
        else:
            live = self.gpu.allocate(owner, size, self.gpu.current_stream(owner))
        return self.wrap(live, owner, size, dtype, sizes, strides, offset)


def bits(tensor: torch.Tensor) -> int:
    """How the values of a tensor are read: CONJUGATE, NEGATIVE, both or neither."""
    return CONJUGATE * tensor.is_conj() + NEGATIVE * tensor.is_neg()


def with_bits(tensor: torch.Tensor, flags: int) -> torch.Tensor:
    """A view of a plain tensor that reads its values so."""
    if flags & CONJUGATE:
        tensor = torch._conj(tensor)
    return torch._neg_view(tensor) if flags & NEGATIVE else tensor


def storage_bytes(dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes a storage needs for a tensor of this layout."""
    if 0 in sizes:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides))
    return (last + 1) * dtype.itemsize
