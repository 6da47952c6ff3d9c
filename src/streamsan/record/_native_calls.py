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
import mmap
import platform
import sys
from collections.abc import Callable
from typing import Any

from streamsan.errors import UsageError

_ADDRESS = bytes(8)  # stands for an address in the code below

_CALL = (
    b"\x48\xb8" + _ADDRESS +  # mov rax, the address
    b"\xff\xd0"  # call rax
)  # fmt: skip

_GUARDED = b"".join(
    (
        b"\x48\x83\xec\x58",  # sub rsp, 88
        b"\x48\x89\x3c\x24",  # mov [rsp], rdi: the four arguments
        b"\x48\x89\x74\x24\x08",  # mov [rsp+8], rsi
        b"\x48\x89\x54\x24\x10",  # mov [rsp+16], rdx
        b"\x48\x89\x4c\x24\x18",  # mov [rsp+24], rcx
        b"\x48\xc7\x44\x24\x40\x00\x00\x00\x00",  # mov qword [rsp+64], 0: the result
        _CALL,  # Py_IsInitialized
        b"\x85\xc0",  # test eax, eax
        b"\x74\x7a",  # je out
        _CALL,  # PyGILState_Ensure
        b"\x89\x44\x24\x38",  # mov [rsp+56], eax
        b"\x48\x8d\x7c\x24\x20",  # lea rdi, [rsp+32]: the pending exception
        b"\x48\x8d\x74\x24\x28",  # lea rsi, [rsp+40]
        b"\x48\x8d\x54\x24\x30",  # lea rdx, [rsp+48]
        _CALL,  # PyErr_Fetch
        b"\x48\x8b\x3c\x24",  # mov rdi, [rsp]
        b"\x48\x8b\x74\x24\x08",  # mov rsi, [rsp+8]
        b"\x48\x8b\x54\x24\x10",  # mov rdx, [rsp+16]
        b"\x48\x8b\x4c\x24\x18",  # mov rcx, [rsp+24]
        _CALL,  # the function
        b"\x48\x89\x44\x24\x40",  # mov [rsp+64], rax
        b"\x48\x8b\x7c\x24\x20",  # mov rdi, [rsp+32]
        b"\x48\x8b\x74\x24\x28",  # mov rsi, [rsp+40]
        b"\x48\x8b\x54\x24\x30",  # mov rdx, [rsp+48]
        _CALL,  # PyErr_Restore
        b"\x8b\x7c\x24\x38",  # mov edi, [rsp+56]
        _CALL,  # PyGILState_Release
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
        b"\x48\xb8" + _ADDRESS,  # fail: mov rax, std::__throw_bad_alloc
        b"\xff\xe0",  # jmp rax
    )
)


def supported() -> bool:
    """Whether this process can run the instructions of this module."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


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
            self._code = mmap.mmap(
                -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
            )
        except OSError as error:
            raise UsageError(
                f"this system does not let a process make code ({error.strerror}), which an"
                " allocator of StreamSan's on a real GPU needs: use --device virtual"
            ) from None
        # Not even the end of the interpreter may unmap it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._code))
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._kept: list[Any] = []
        python = ctypes.pythonapi
        self._before = [
            _address(call)
            for call in (python.Py_IsInitialized, python.PyGILState_Ensure, python.PyErr_Fetch)
        ]
        self._after = [_address(call) for call in (python.PyErr_Restore, python.PyGILState_Release)]
        self._throw = _address(ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv)

    def returning(self, function: Callable[[int, int, int], int]) -> int:
        """Address of ``void *function(size_t, int, void *)``.

        A result of 0 becomes the C++ exception ``std::bad_alloc``, and so does a call after the
        interpreter's end. `function` must raise nothing.
        """
        kinds = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t
        made = self._keep(ctypes.CFUNCTYPE(*kinds)(function))
        return self._add(_THROWING + _GUARDED, [self._throw, *self._before, made, *self._after])

    def notifying(self, function: Callable[..., None], *kinds: Any) -> int:
        """Address of ``void function(kinds...)``, up to four integers or pointers.

        A call after the interpreter's end does nothing. `function` must raise nothing.
        """
        made = self._keep(ctypes.CFUNCTYPE(None, *kinds)(function))
        return self._add(_GUARDED, [*self._before, made, *self._after])

    def _keep(self, function: Any) -> int:
        self._kept.append(function)
        return _address(function)

    def _add(self, code: bytes, addresses: list[int]) -> int:
        for address in addresses:
            code = code.replace(_ADDRESS, address.to_bytes(8, "little"), 1)
        place = -(-self._code.tell() // 16) * 16
        self._code.seek(place)
        self._code.write(code)
        return self._start + place


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
