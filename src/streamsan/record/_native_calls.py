"""Python functions as C++ code may call them: at any time, and with a failure to tell.

A ctypes callback alone will not do for the functions of a C++ allocator:

- called once the interpreter has shut down (by a destructor of a static object), it would crash;
- called while an exception is on its way (a frame that is left drops its tensors), it would be run
  with that exception pending, and lose it;
- it cannot throw, while torch takes any address it is given, also that of no memory.

So each gets a few instructions in front. They ask ``Py_IsInitialized`` and leave Python alone where
the answer is no, they put a pending exception aside, and where the function fails they jump to the
C++ library's ``std::__throw_bad_alloc``. A jump, not a call: no frame of this code is on the stack
when the exception unwinds it, so none has to be described to the unwinder.

The instructions are those of x86-64 under the System V calling convention.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from streamsan.errors import UsageError
from streamsan.record._native_code import ADDRESS, CALL, CodePage, address_of, supported

_GUARDED = b"".join(
    (
        b"\x48\x83\xec\x58",  # sub rsp, 88
        b"\x48\x89\x3c\x24",  # mov [rsp], rdi: the four arguments
        b"\x48\x89\x74\x24\x08",  # mov [rsp+8], rsi
        b"\x48\x89\x54\x24\x10",  # mov [rsp+16], rdx
        b"\x48\x89\x4c\x24\x18",  # mov [rsp+24], rcx
        b"\x48\xc7\x44\x24\x40\x00\x00\x00\x00",  # mov qword [rsp+64], 0: the result
        CALL,  # Py_IsInitialized
        b"\x85\xc0",  # test eax, eax
        b"\x74\x7a",  # je out
        CALL,  # PyGILState_Ensure
        b"\x89\x44\x24\x38",  # mov [rsp+56], eax
        b"\x48\x8d\x7c\x24\x20",  # lea rdi, [rsp+32]: the pending exception
        b"\x48\x8d\x74\x24\x28",  # lea rsi, [rsp+40]
        b"\x48\x8d\x54\x24\x30",  # lea rdx, [rsp+48]
        CALL,  # PyErr_Fetch
        b"\x48\x8b\x3c\x24",  # mov rdi, [rsp]
        b"\x48\x8b\x74\x24\x08",  # mov rsi, [rsp+8]
        b"\x48\x8b\x54\x24\x10",  # mov rdx, [rsp+16]
        b"\x48\x8b\x4c\x24\x18",  # mov rcx, [rsp+24]
        CALL,  # the function
        b"\x48\x89\x44\x24\x40",  # mov [rsp+64], rax
        b"\x48\x8b\x7c\x24\x20",  # mov rdi, [rsp+32]
        b"\x48\x8b\x74\x24\x28",  # mov rsi, [rsp+40]
        b"\x48\x8b\x54\x24\x30",  # mov rdx, [rsp+48]
        CALL,  # PyErr_Restore
        b"\x8b\x7c\x24\x38",  # mov edi, [rsp+56]
        CALL,  # PyGILState_Release
        b"\x48\x8b\x44\x24\x40",  # out: mov rax, [rsp+64]
        b"\x48\x83\xc4\x58",  # add rsp, 88
        b"\xc3",  # ret
    )
)

_THROWING = b"".join(
    (
        b"\x48\x83\xec\x08",  # sub rsp, 8: the stack's alignment for a call
        b"\xe8\x16\x00\x00\x00",  # call the guarded function, which follows
        b"\x48\x83\xc4\x08",  # add rsp, 8
        b"\x48\x85\xc0",  # test rax, rax
        b"\x74\x01",  # je fail
        b"\xc3",  # ret
        b"\x48\xb8" + ADDRESS,  # fail: mov rax, std::__throw_bad_alloc
        b"\xff\xe0",  # jmp rax
    )
)


class NativeCalls:
    """Addresses for C++ code to call, for the rest of the process."""

    def __init__(self) -> None:
        """Raises UsageError where the system does not let a process have code of its own."""
        if not supported():
            raise UsageError(
                "an allocator of StreamSan's on a real GPU needs Linux on x86-64: use --device"
                " virtual"
            )
        try:
            self._page = CodePage()
        except OSError as error:
            raise UsageError(
                f"this system does not let a process make code ({error.strerror}), which an"
                " allocator of StreamSan's on a real GPU needs: use --device virtual"
            ) from None
        self._kept: list[Any] = []
        python = ctypes.pythonapi
        self._before = [
            address_of(call)
            for call in (python.Py_IsInitialized, python.PyGILState_Ensure, python.PyErr_Fetch)
        ]
        self._after = [
            address_of(call) for call in (python.PyErr_Restore, python.PyGILState_Release)
        ]
        self._throw = address_of(ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv)

    def returning(self, function: Callable[[int, int, int], int]) -> int:
        """Address of ``void *function(size_t, int, void *)``.

        A result of 0 becomes the C++ exception ``std::bad_alloc``, and so does a call after the
        interpreter's end. `function` must raise nothing.
        """
        kinds = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t
        made = self._keep(ctypes.CFUNCTYPE(*kinds)(function))
        addresses = [self._throw, *self._before, made, *self._after]
        return self._page.add(_THROWING + _GUARDED, addresses)

    def notifying(
        self,
        function: Callable[..., None],
        *kinds: Any,
        first: bytes = b"",
        addresses: Sequence[int] = (),
    ) -> int:
        """Address of ``void function(kinds...)``, up to four integers or pointers.

        A call after the interpreter's end does nothing. `function` must raise nothing. The
        instructions `first`, with their `addresses`, come before all else: they may return, or
        leave the arguments as they are and let the call go on behind them.
        """
        made = self._keep(ctypes.CFUNCTYPE(None, *kinds)(function))
        return self._page.add(first + _GUARDED, [*addresses, *self._before, made, *self._after])

    def _keep(self, function: Any) -> int:
        self._kept.append(function)
        return address_of(function)
