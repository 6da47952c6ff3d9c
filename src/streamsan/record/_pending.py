"""Exceptions that are on their way while torch's GPU trace runs Python code.

A statement that fails drops what it has made so far, device tensors included, with the exception
pending. torch's trace then calls into Python as if there were none (`CONCRETE_GPU_TRACE` in
torch/csrc/PyInterpreter.cpp): it imports ``torch.cuda``, looks up the callbacks' registry and calls
it. The import finds an exception after a call that did not fail, calls that a ``SystemError``, and
torch logs and drops it, and the program's exception with it.

So the import that torch's library calls is replaced (`_linkage`) by a few instructions, which put a
pending exception aside and answer with the module. They cannot put it back: whatever Python code
returns with an exception pending, that counts as a failure. What the registry returns is dropped by
torch as the last thing that it does, so it returns a capsule whose destructor, again a few
instructions, makes the exception pending once more.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._utils import CallbackRegistry
from torch.cuda import _gpu_trace

from streamsan.record import _core
from streamsan.record._linkage import fill, slots
from streamsan.record._native_code import (
    ADDRESS,
    CALL,
    CodePage,
    address_of,
    keep_forever,
    supported,
)

_Parts = Any
"""An exception as CPython keeps it while pending: an array of type, value and traceback."""

_ASIDE = b"".join(
    (
        b"\x48\x8d\x3c\x24",  # lea rdi, [rsp]
        b"\x48\x8d\x74\x24\x08",  # lea rsi, [rsp+8]
        b"\x48\x8d\x54\x24\x10",  # lea rdx, [rsp+16]
        CALL,  # PyErr_Fetch
        b"\x48\x8b\x3c\x24",  # mov rdi, [rsp]
        b"\x48\x8b\x74\x24\x08",  # mov rsi, [rsp+8]
        b"\x48\x8b\x54\x24\x10",  # mov rdx, [rsp+16]
        CALL,  # put_aside
    )
)

_ANSWER = b"".join(
    (
        CALL,  # PyErr_Occurred
        b"\x48\x85\xc0",  # test rax, rax
        b"\x74" + bytes([len(_ASIDE)]),  # je, over the next
        _ASIDE,
        b"\x48\xbf" + ADDRESS,  # mov rdi, the module
        CALL,  # Py_IncRef
        b"\x48\xb8" + ADDRESS,  # mov rax, the module
        b"\x48\x83\xc4\x28",  # add rsp, 40
        b"\xc3",  # ret
    )
)

_IMPORT = b"".join(
    (
        b"\x48\x83\xec\x28",  # sub rsp, 40
        b"\x48\x89\x7c\x24\x18",  # mov [rsp+24], rdi: the name
        b"\x48\xbe" + ADDRESS,  # mov rsi, "torch.cuda"
        CALL,  # strcmp
        b"\x85\xc0",  # test eax, eax
        b"\x75" + bytes([len(_ANSWER)]),  # jne, over the next
        _ANSWER,
        b"\x48\x8b\x7c\x24\x18",  # mov rdi, [rsp+24]
        b"\x48\x83\xc4\x28",  # add rsp, 40
        b"\x48\xb8" + ADDRESS,  # mov rax, PyImport_ImportModule
        b"\xff\xe0",  # jmp rax
    )
)

_DESTRUCTOR = b"".join(
    (
        b"\x48\x83\xec\x08",  # sub rsp, 8: the stack's alignment for a call
        b"\x31\xf6",  # xor esi, esi: no name
        CALL,  # PyCapsule_GetPointer
        b"\x48\x8b\x38",  # mov rdi, [rax]
        b"\x48\x8b\x70\x08",  # mov rsi, [rax+8]
        b"\x48\x8b\x50\x10",  # mov rdx, [rax+16]
        CALL,  # PyErr_Restore
        b"\x48\x83\xc4\x08",  # add rsp, 8
        b"\xc3",  # ret
    )
)


class PendingErrors:
    """Exceptions put aside, innermost last, for each thread; and the code that does it."""

    def __init__(self, module: object) -> None:
        """`module` is what an import of ``torch.cuda`` gives. Raises OSError as `CodePage`."""
        self._aside: dict[int, list[_Parts]] = {}
        self._returned: dict[int, _Parts] = {}
        page, python = CodePage(), ctypes.pythonapi
        put_aside = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 3)(self._put_aside)
        name = ctypes.create_string_buffer(b"torch.cuda")
        for kept in (module, put_aside, name):
            keep_forever(kept)
        self.import_module = page.add(
            _IMPORT,
            [
                ctypes.addressof(name),
                address_of(ctypes.CDLL(None).strcmp),
                address_of(python.PyErr_Occurred),
                address_of(python.PyErr_Fetch),
                address_of(put_aside),
                id(module),
                address_of(python.Py_IncRef),
                id(module),
                address_of(python.PyImport_ImportModule),
            ],
        )
        """Address of what takes the place of ``PyImport_ImportModule``."""
        self._destructor = page.add(
            _DESTRUCTOR,
            [address_of(python.PyCapsule_GetPointer), address_of(python.PyErr_Restore)],
        )
        self._new_capsule = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )(address_of(python.PyCapsule_New))

    def returning(self, call: Callable[..., None]) -> Callable[..., object]:
        """`call`, with a result that makes the exception pending again as soon as it is dropped."""
        made: Callable[..., object] = _core.Then(call, self._aside, lambda *_: self._capsule())
        return made

    def _put_aside(self, *parts: int) -> None:
        self._aside.setdefault(threading.get_ident(), []).append((ctypes.c_size_t * 3)(*parts))

    def _capsule(self) -> object:
        """What brings back the innermost exception of this thread, if there is one."""
        thread = threading.get_ident()
        mine = self._aside.get(thread)
        if not mine:
            return None
        parts = self._returned[thread] = mine.pop()  # has to outlive the capsule, which is short
        if not mine:
            del self._aside[thread]
        return self._new_capsule(ctypes.addressof(parts), None, self._destructor)


def keep_pending_errors() -> bool:
    """See to it that torch's trace loses no exception.

    False where that cannot be: elsewhere than Linux on x86-64, or where torch's library is built
    otherwise.
    """
    if not supported():
        return False
    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_python.so")
    try:
        found = slots(library, "PyImport_ImportModule")
        errors = PendingErrors(torch.cuda) if found else None
    except OSError:
        return False
    if errors is None:
        return False
    for registry in filter(_is_registry, vars(_gpu_trace).values()):
        registry.fire_callbacks = errors.returning(registry.fire_callbacks)
    return all(fill(slot, errors.import_module) for slot in found)


def _is_registry(value: object) -> bool:
    return isinstance(value, CallbackRegistry)
