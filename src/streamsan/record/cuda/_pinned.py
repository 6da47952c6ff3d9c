"""Pinned host memory that is known: torch's own, and what the program registers with CUDA."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any

import torch

from streamsan.model import records as r
from streamsan.record._observer import Observer


def _has_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in one piece of memory, unlike sparse ones and zeros not made real."""
    return tensor.layout is torch.strided and not tensor._is_zerotensor()


class Pinned:
    """Pinned blocks by address. Nothing tells when one is given up: it is gone when something else
    is found at its address.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._starts: list[int] = []
        self.known: dict[int, tuple[int, int]] = {}
        """Numbers and sizes of the blocks, by address."""

    def block_of(self, tensor: torch.Tensor) -> int:
        """The pinned block that a host tensor lies in, or NONE.

        What NumPy or a buffer lent to torch may begin in the middle of one.
        """
        if not self._starts or tensor.device.type != "cpu" or not _has_storage(tensor):
            return r.NONE
        storage = tensor.untyped_storage()
        return self._block(storage.data_ptr(), storage.nbytes())

    def _block(self, address: int, size: int) -> int:
        found = self.find(address) if size else None
        if found is None or address + size > found[1] + found[2]:
            return r.NONE
        return self.known.get(found[1], (r.NONE, 0))[0]

    def find(self, address: int) -> tuple[int, int, int] | None:
        """The address space, start and size of the block that holds a byte, if one is known."""
        place = bisect_right(self._starts, address)
        if place:
            start = self._starts[place - 1]
            _, held = self.known.get(start, (r.NONE, 0))
            if address < start + held:
                return r.HOST, start, held
        return None

    def fresh(self, tensor: torch.Tensor, kwargs: dict[str, Any]) -> None:
        """A new host tensor: note it where it was asked for in pinned memory."""
        if kwargs.get("pin_memory"):
            self.add(tensor)
        elif self._starts and tensor.device.type == "cpu" and _has_storage(tensor):
            storage = tensor.untyped_storage()
            self.drop(storage.data_ptr(), storage.nbytes())

    def check(self, tensor: torch.Tensor) -> None:
        """A host tensor is copied from or to a device: ask CUDA what it is."""
        if not _has_storage(tensor) or self.block_of(tensor) != r.NONE:
            return
        if tensor.numel() and tensor.is_pinned():
            self.add(tensor)
        else:
            storage = tensor.untyped_storage()
            self.drop(storage.data_ptr(), storage.nbytes())

    def add(self, tensor: torch.Tensor) -> None:
        """A tensor in pinned memory; what was at its address before is gone."""
        storage = tensor.untyped_storage()
        self.add_range(storage.data_ptr(), storage.nbytes())

    def add_range(self, address: int, size: int, name: str = "pinned") -> None:
        """Pinned memory of an allocator of that name; what was there before is gone."""
        if not size:
            return
        observer = self._observer
        with observer.monitor:
            self.drop(address, size)
            number = observer.next_number()
            self.known[address] = (number, size)
            insort(self._starts, address)
            thread, stack = observer.thread(), observer.stack()
            observer.emit(r.Alloc(number, r.HOST, address, size, r.NONE, thread, stack, name))

    def drop(self, address: int, size: int) -> None:
        """There is other memory at some addresses now: known blocks there are gone."""
        with self._observer.monitor:
            place = max(bisect_right(self._starts, address) - 1, 0)
            while place < len(self._starts) and self._starts[place] < address + max(size, 1):
                start = self._starts[place]
                number, held = self.known[start]
                if start + held <= address:
                    place += 1
                    continue
                del self._starts[place], self.known[start]
                self._observer.emit(r.Free(number, self._observer.thread(), r.NONE))
