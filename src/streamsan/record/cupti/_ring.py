"""Calls that are noted without Python: CUPTI's callback writes them into a ring, for later.

torch's allocator records events and frees memory with its lock held. A callback that waited for the
interpreter in there would wait for ever where the thread that has the interpreter waits for that
lock. So a few instructions note such calls, in the order in which they end, and what comes to
Python next reads them first. An entry has the function's number, which is written last, the thread
(what ``threading.get_ident`` tells: the address of its control block, at ``fs:0``), and the first
two words of the parameters. Calls that fail are not noted, nor are beginnings of calls.

The instructions are those of x86-64 under the System V calling convention.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from streamsan.record._native_code import ADDRESS, keep_forever

_ENTRIES = 1 << 12
_NUMBERS = 1 << 12
"""More than there are functions."""

_FIRST, _SIZE = 64, 32
"""Where the entries start, behind their count, and the bytes of each."""

_WRITE = b"".join(
    (
        b"\x4c\x8b\x49\x10",  # mov r9, [rcx+16]: the parameters
        b"\x49\xba" + ADDRESS,  # mov r10, the ring
        b"\xb8\x01\x00\x00\x00",  # mov eax, 1
        b"\xf0\x49\x0f\xc1\x02",  # lock xadd [r10], rax
        b"\x25" + (_ENTRIES - 1).to_bytes(4, "little"),  # and eax, entries - 1
        b"\x48\xc1\xe0\x05",  # shl rax, 5
        b"\x4c\x01\xd0",  # add rax, r10
        b"\x64\x48\x8b\x34\x25\x00\x00\x00\x00",  # mov rsi, fs:[0]
        b"\x48\x89\x70\x48",  # mov [rax+72], rsi
        b"\x49\x8b\x31",  # mov rsi, [r9]
        b"\x48\x89\x70\x50",  # mov [rax+80], rsi
        b"\x49\x8b\x71\x08",  # mov rsi, [r9+8]
        b"\x48\x89\x70\x58",  # mov [rax+88], rsi
        b"\x48\x89\x50\x40",  # mov [rax+64], rdx: the number
        b"\xc3",  # ret
    )
)

_NOTE = b"".join(
    (
        b"\x48\x8b\x41\x18",  # mov rax, [rcx+24]: where the result is
        b"\x83\x38\x00",  # cmp dword [rax], 0
        b"\x75" + bytes([len(_WRITE) - 1]),  # jne, to the ret
        _WRITE,
    )
)

_CHOOSE = b"".join(
    (
        b"\x83\x39\x01",  # cmp dword [rcx], 1: the end of a call
        b"\x74\x01\xc3",  # je over the ret
        b"\x49\xb8" + ADDRESS,  # mov r8, the table
        b"\x41\x0f\xb6\x04\x10",  # movzx eax, byte [r8+rdx]
        b"\x84\xc0",  # test al, al
        b"\x74" + bytes([len(_NOTE)]),  # je, behind the next
    )
)

Entry = tuple[int, int, int, int]
"""Number of the function, thread, and two words."""


class Ring:
    """The ring; `code` goes in front of a callback and needs the `addresses`."""

    code = _CHOOSE + _NOTE

    def __init__(self, numbers: Iterable[int]) -> None:
        """Calls of the functions of these numbers are noted."""
        self._table = (ctypes.c_ubyte * _NUMBERS)()
        self._words = (ctypes.c_uint64 * ((_FIRST + _ENTRIES * _SIZE) // 8))()
        keep_forever(self._table)
        keep_forever(self._words)
        for number in numbers:
            self._table[number] = 1
        self.addresses = (ctypes.addressof(self._table), ctypes.addressof(self._words))
        self._read = 0
        self.lost = 0
        """Entries that came faster than they were read."""

    @property
    def pending(self) -> bool:
        """Whether there are entries to read."""
        return bool(self._words[0] != self._read)

    def take(self) -> list[Entry]:
        """The entries since the last time, in order."""
        words, found = self._words, []
        count = words[0]
        if count - self._read > _ENTRIES:
            self.lost += count - _ENTRIES - self._read
            self._read = count - _ENTRIES
        while self._read < count:
            at = (_FIRST + (self._read % _ENTRIES) * _SIZE) // 8
            number = words[at]
            if not number:  # it is being written
                break
            found.append((number, words[at + 1], words[at + 2], words[at + 3]))
            words[at] = 0
            self._read += 1
        return found
