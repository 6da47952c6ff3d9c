"""Calls that a loaded library makes into other ones, told to Python before and after.

The slot through which the library calls a function (`_linkage`) gets the address of a few
instructions instead. They keep the arguments where Python can read them, call Python, call the
function with the very arguments that it was given, and call Python again with what it returned. The
functions are those of C interfaces: they throw nothing through this frame.

The instructions are those of x86-64 under the System V calling convention.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsan.record._linkage import fill, loaded, slots
from streamsan.record._native_calls import NativeCalls
from streamsan.record._native_code import ADDRESS, CALL, CodePage, address_of

_STACK_WORDS = 40
"""Words of arguments that are handed on from the stack: more than any function here takes."""

_KEEP = b"".join(
    (
        b"\x55",  # push rbp
        b"\x48\x89\xe5",  # mov rbp, rsp
        b"\x48\x81\xec\xb0\x01\x00\x00",  # sub rsp, 112 + 8 * 40
        b"\x48\x89\x7d\xd0",  # mov [rbp-48], rdi: the arguments in general registers
        b"\x48\x89\x75\xd8",  # mov [rbp-40], rsi
        b"\x48\x89\x55\xe0",  # mov [rbp-32], rdx
        b"\x48\x89\x4d\xe8",  # mov [rbp-24], rcx
        b"\x4c\x89\x45\xf0",  # mov [rbp-16], r8
        b"\x4c\x89\x4d\xf8",  # mov [rbp-8], r9
        b"\xf2\x0f\x11\x45\x90",  # movsd [rbp-112], xmm0: those in vector registers
        b"\xf2\x0f\x11\x4d\x98",  # movsd [rbp-104], xmm1
        b"\xf2\x0f\x11\x55\xa0",  # movsd [rbp-96], xmm2
        b"\xf2\x0f\x11\x5d\xa8",  # movsd [rbp-88], xmm3
        b"\xf2\x0f\x11\x65\xb0",  # movsd [rbp-80], xmm4
        b"\xf2\x0f\x11\x6d\xb8",  # movsd [rbp-72], xmm5
        b"\xf2\x0f\x11\x75\xc0",  # movsd [rbp-64], xmm6
        b"\xf2\x0f\x11\x7d\xc8",  # movsd [rbp-56], xmm7
    )
)

_BEFORE = b"".join(
    (
        b"\x48\xbf" + ADDRESS,  # mov rdi, the number
        b"\x48\x8d\x75\xd0",  # lea rsi, [rbp-48]
        b"\x31\xd2",  # xor edx, edx
        b"\x31\xc9",  # xor ecx, ecx: before
        CALL,  # Python
    )
)

_FUNCTION = b"".join(
    (
        b"\x48\x8d\x75\x10",  # lea rsi, [rbp+16]: the arguments on the stack
        b"\x48\x89\xe7",  # mov rdi, rsp
        b"\xb9\x28\x00\x00\x00",  # mov ecx, 40
        b"\xf3\x48\xa5",  # rep movsq
        b"\x48\x8b\x7d\xd0",  # mov rdi, [rbp-48]
        b"\x48\x8b\x75\xd8",  # mov rsi, [rbp-40]
        b"\x48\x8b\x55\xe0",  # mov rdx, [rbp-32]
        b"\x48\x8b\x4d\xe8",  # mov rcx, [rbp-24]
        b"\x4c\x8b\x45\xf0",  # mov r8, [rbp-16]
        b"\x4c\x8b\x4d\xf8",  # mov r9, [rbp-8]
        b"\xf2\x0f\x10\x45\x90",  # movsd xmm0, [rbp-112]
        b"\xf2\x0f\x10\x4d\x98",  # movsd xmm1, [rbp-104]
        b"\xf2\x0f\x10\x55\xa0",  # movsd xmm2, [rbp-96]
        b"\xf2\x0f\x10\x5d\xa8",  # movsd xmm3, [rbp-88]
        b"\xf2\x0f\x10\x65\xb0",  # movsd xmm4, [rbp-80]
        b"\xf2\x0f\x10\x6d\xb8",  # movsd xmm5, [rbp-72]
        b"\xf2\x0f\x10\x75\xc0",  # movsd xmm6, [rbp-64]
        b"\xf2\x0f\x10\x7d\xc8",  # movsd xmm7, [rbp-56]
        CALL,  # the function
    )
)

_AFTER = b"".join(
    (
        b"\x48\x89\x04\x24",  # mov [rsp], rax
        b"\x48\xbf" + ADDRESS,  # mov rdi, the number
        b"\x48\x8d\x75\xd0",  # lea rsi, [rbp-48]
        b"\x89\xc2",  # mov edx, eax: what it returned
        b"\xb9\x01\x00\x00\x00",  # mov ecx, 1: after
        CALL,  # Python
        b"\x48\x8b\x04\x24",  # mov rax, [rsp]
        b"\xc9",  # leave
        b"\xc3",  # ret
    )
)

_CODE = _KEEP + _BEFORE + _FUNCTION + _AFTER

_REGISTERS = 6
_VECTORS = 8
_ON_STACK = 8
"""Words from the first argument to the first one on the stack."""


def word_at(address: int) -> int:
    """The word of 64 bits at an address."""
    return int(ctypes.c_uint64.from_address(address).value)


class Arguments:
    """The arguments of one call, read in order; they are there for as long as the call lasts."""

    __slots__ = ("_block", "_stack", "_vectors", "_words")

    def __init__(self, block: int) -> None:
        """`block` is where the first general register was kept."""
        self._block = block
        self._words = self._vectors = self._stack = 0

    def word(self) -> int:
        """The next one that is a whole number of up to 64 bits, unsigned, or an address."""
        if self._words == _REGISTERS:
            return int(self._next_on_stack(ctypes.c_uint64))
        self._words += 1
        return word_at(self._block + 8 * (self._words - 1))

    def double(self) -> float:
        """The next one that is a floating-point number of 64 bits."""
        if self._vectors == _VECTORS:
            return float(self._next_on_stack(ctypes.c_double))
        self._vectors += 1
        at = self._block + 8 * (self._vectors - 1 - _VECTORS)
        return float(ctypes.c_double.from_address(at).value)

    def _next_on_stack(self, kind: Any) -> Any:
        self._stack += 1
        return kind.from_address(self._block + 8 * (_ON_STACK + self._stack - 1)).value


@dataclass(frozen=True, slots=True)
class Listener:
    """What is told of the calls of one function; neither may raise.

    `before` gets the arguments, `after` the same and the 32 bits that the function returned.
    """

    before: Callable[[Arguments], None]
    after: Callable[[Arguments, int], None]


class Outgoing:
    """Listens to calls, for the rest of the process."""

    def __init__(self) -> None:
        """Raises UsageError where the system does not let a process have code of its own."""
        calls = NativeCalls()
        kinds = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int
        self._kept = calls  # whose callback C code is to call
        self._python = calls.notifying(self._called, *kinds)
        self._listeners: list[Listener] = []
        self._page: CodePage | None = None

    def listen(self, path: str, function: str, listener: Listener) -> bool:
        """Tell `listener` of the calls of `function` that the library at `path` makes.

        False where it makes none, or its slots cannot be changed.
        """
        places = slots(path, function)
        with loaded(path) as library:
            if library is None or not places:
                return False
            address = address_of(getattr(library, function))
        self._listeners.append(listener)
        number = len(self._listeners)  # never 0, which would be taken for an ADDRESS
        code = self._code(number, address)
        filled = [fill(place, code) for place in places]
        return all(filled)

    def _code(self, number: int, function: int) -> int:
        if self._page is None or not self._page.has_room(len(_CODE)):
            self._page = CodePage()
        return self._page.add(_CODE, [number, self._python, function, number, self._python])

    def _called(self, number: int, block: int, result: int, after: int) -> None:
        listener = self._listeners[number - 1]
        if after:
            listener.after(Arguments(block), result)
        else:
            listener.before(Arguments(block))
