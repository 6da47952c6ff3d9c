"""Where a loaded library calls a function of another one: found, and replaced.

A library of the ELF format (Linux) calls what lies in others through slots that the loader fills,
one for each function; its dynamic section names them (System V ABI, "Dynamic Linking"; x86-64
supplement for the relocations). To write another address into a slot changes the calls of that
library alone.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_LINK_MAP = 2  # of dlinfo
_STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_SIZE, _CALLS, _CALLS_SIZE = 5, 6, 7, 8, 23, 2
_SLOTS = (6, 7)  # R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT


def slots(path: str, function: str) -> list[int]:
    """Addresses of the slots through which the library at `path` calls `function`.

    Empty where it is not loaded, or calls no such function.
    """
    return [place for name, place in _all_slots(path) if name == function]


def called(path: str) -> set[str]:
    """The functions that the library at `path` calls in others; none where it is not loaded."""
    return {name for name, _ in _all_slots(path)}


@contextmanager
def loaded(path: str) -> Iterator[ctypes.CDLL | None]:
    """The library at `path` if the process has loaded it, which it is kept for here and no longer.

    ctypes never gives up a library that it was asked for.
    """
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        yield None
        return
    try:
        yield library
    finally:
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


def _all_slots(path: str) -> list[tuple[str, int]]:
    """All slots of a library: the names of what they are for, and their addresses."""
    found = []
    with loaded(path) as library:
        if library is None:
            return []
        base, entries = _dynamic(library)
        strings, symbols = entries[_STRINGS], entries[_SYMBOLS]
        for table, size in ((_CALLS, _CALLS_SIZE), (_RELOCATIONS, _RELOCATIONS_SIZE)):
            content = ctypes.string_at(entries.get(table, 0), entries.get(size, 0))
            for offset, info, _ in struct.iter_unpack("<QQq", content):
                if info & 0xFFFFFFFF in _SLOTS:
                    symbol = symbols + 24 * (info >> 32)
                    name = strings + ctypes.c_uint32.from_address(symbol).value
                    found.append((ctypes.string_at(name).decode(errors="replace"), base + offset))
    return found


def fill(slot: int, address: int) -> bool:
    """Write an address into a slot, in one piece; False where the system does not allow it."""
    page = slot & ~(mmap.PAGESIZE - 1)
    mode = mmap.PROT_READ | mmap.PROT_WRITE
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), mode):
        return False
    ctypes.c_uint64.from_address(slot).value = address
    return True


def _dynamic(library: ctypes.CDLL) -> tuple[int, dict[int, int]]:
    """Where a library is loaded, and its dynamic section by tag, with addresses in this process."""
    pointer = ctypes.c_void_p()
    handle = ctypes.c_void_p(library._handle)
    if ctypes.CDLL(None).dlinfo(handle, _LINK_MAP, ctypes.byref(pointer)) or not pointer.value:
        raise OSError("the loader does not tell where a library is")
    base, _, section = struct.unpack("<QQQ", ctypes.string_at(pointer.value, 24))
    entries = dict(_entries(section))
    for tag in (_STRINGS, _SYMBOLS, _RELOCATIONS, _CALLS):
        if entries.get(tag, base) < base:  # not every loader writes the addresses in
            entries[tag] += base
    return base, entries


def _entries(section: int) -> Iterator[tuple[int, int]]:
    while True:
        tag, value = struct.unpack("<qQ", ctypes.string_at(section, 16))
        if tag == 0:
            return
        yield tag, value
        section += 16
