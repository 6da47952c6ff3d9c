"""Memory of the virtual machine: one address range a device, and one for pinned host memory.

All ranges lie in one anonymous private mapping that takes pages only where it is written, so that
a range may be larger than the machine's memory, and the owner of an address is one subtraction
and one shift away.
"""

from __future__ import annotations

import ctypes
import mmap

from streamsan.errors import UsageError

PAGE = 1 << 21
"""Granularity in which segments are cut from a range, in bytes: that of a CUDA mapping."""

PINNED = -1
"""What `Memory.owner` answers for pinned host memory."""

NOWHERE = -2
"""What `Memory.owner` answers for an address outside of the virtual machine."""

POISON = 0xFF
"""All bits set: NaN in every floating type, -1 in every signed integer."""


class Range:
    """Addresses of one memory, handed out in segments; the `Driver` of its allocator.

    `size` bytes may be in use at a time, anywhere in a `span` of addresses twice as long, so that
    gaps between segments are no shortage: a driver maps pages wherever they are wanted.
    The first page is never handed out: it is the address of tensors that have no bytes.
    """

    def __init__(self, start: int, size: int, span: int, mapping: mmap.mmap, offset: int) -> None:
        self.start = start
        self.size = size
        self._end = start + span
        self._mapping = mapping
        self._offset = offset
        self._top = start + PAGE
        self._free: list[tuple[int, int]] = []
        self._in_use = 0

    @property
    def free(self) -> int:
        """Bytes that can still be reserved."""
        return self.size - PAGE - self._in_use

    def reserve(self, size: int) -> int | None:
        """Address of a fresh segment full of the NaN-like pattern, or None when memory is out."""
        size = -(-size // PAGE) * PAGE
        address = self._take(size)
        if address is not None:
            self._in_use += size
            ctypes.memset(address, POISON, size)
        return address

    def _take(self, size: int) -> int | None:
        if size > self.free:
            return None
        for index, (address, length) in enumerate(self._free):
            if length >= size:
                if length == size:
                    del self._free[index]
                else:
                    self._free[index] = (address + size, length - size)
                return address
        if self._top + size > self._end:
            return None
        address = self._top
        self._top += size
        return address

    def release(self, address: int, size: int) -> None:
        """Give a segment back; its pages return to the machine."""
        size = -(-size // PAGE) * PAGE
        self._in_use -= size
        self._mapping.madvise(mmap.MADV_DONTNEED, self._offset + address - self.start, size)
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self._free, (address, size)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged


class Memory:
    """The ranges of all devices and of pinned host memory."""

    def __init__(self, devices: int, device_bytes: int, pinned_bytes: int) -> None:
        stride = 2 << (max(device_bytes, pinned_bytes, 2 * PAGE) - 1).bit_length()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        try:
            mapping = mmap.mmap(-1, stride * (devices + 1), flags=flags)
        except OSError as error:
            raise UsageError(
                f"the virtual GPU cannot reserve {stride * (devices + 1) >> 30} GiB of addresses"
                f" ({error.strerror}): ask for less with --memory or --devices"
            ) from None
        self._mapping = mapping
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self.end = self.base + stride * (devices + 1)
        self._shift = stride.bit_length() - 1
        self.devices = [
            Range(self.base + index * stride, device_bytes, stride, mapping, index * stride)
            for index in range(devices)
        ]
        self._pinned_index = devices
        offset = devices * stride
        self.pinned = Range(self.base + offset, pinned_bytes, stride, mapping, offset)

    def owner(self, address: int) -> int:
        """Device index of an address, PINNED, or NOWHERE."""
        if not self.base <= address < self.end:
            return NOWHERE
        index = (address - self.base) >> self._shift
        return PINNED if index == self._pinned_index else index
