"""Machine code of our own in this process: a page to keep it in, and what its parts share.

The instructions are those of x86-64 under the System V calling convention. What is kept here stays
for the rest of the process: C++ code may call it even after the interpreter's end.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Sequence
from typing import Any

ADDRESS = bytes(8)
"""Stands for an address in code that is given to `CodePage.add`."""

CALL = (
    b"\x48\xb8" + ADDRESS +  # mov rax, the address
    b"\xff\xd0"  # call rax
)  # fmt: skip
"""Call a function, the one whose address comes next."""


def supported() -> bool:
    """Whether this process can run such instructions."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


class CodePage:
    """A page of memory that holds code, for the rest of the process."""

    def __init__(self) -> None:
        """Raises OSError where the system does not let a process have code of its own."""
        self._code = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        keep_forever(self._code)  # not even the end of the interpreter may unmap it
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._code))

    def has_room(self, size: int) -> bool:
        """Whether code of so many bytes still fits."""
        return self._code.tell() + size + 16 <= mmap.PAGESIZE

    def add(self, code: bytes, addresses: Sequence[int]) -> int:
        """Keep `code`, with `addresses` in the places of ADDRESS, and return where it starts."""
        for address in addresses:
            code = code.replace(ADDRESS, address.to_bytes(8, "little"), 1)
        place = -(-self._code.tell() // 16) * 16
        self._code.seek(place)
        self._code.write(code)
        return self._start + place


def keep_forever(value: object) -> None:
    """Never free an object, not even at the interpreter's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def address_of(function: Any) -> int:
    """The address of a function of ctypes."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
