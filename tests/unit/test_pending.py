"""Exceptions that are on their way while torch's GPU trace runs: put aside, and back."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from streamsan.record._linkage import fill, slots
from streamsan.record._native_code import ADDRESS, CALL, CodePage, address_of, supported
from streamsan.record._pending import PendingErrors

pytestmark = pytest.mark.skipif(not supported(), reason="needs Linux on x86-64")

TRACE = b"".join(
    (
        b"\x53",  # push rbx: the stack's alignment for a call
        b"\x48\xbf" + ADDRESS,  # mov rdi, "torch.cuda"
        CALL,  # what takes the place of PyImport_ImportModule
        b"\x48\x89\xc7",  # mov rdi, rax
        CALL,  # Py_DecRef
        b"\x48\xbf" + ADDRESS,  # mov rdi, the registry's function
        CALL,  # PyObject_CallNoArgs
        b"\x48\x89\xc7",  # mov rdi, rax
        CALL,  # Py_DecRef
        b"\x5b\xc3",  # pop rbx; ret
    )
)
"""What torch's C++ code does when a tensor is dropped, as the destructor of a capsule."""


class Dropped:
    """Makes objects whose end calls a registry as torch's trace does."""

    def __init__(self, fired: Callable[[], None]) -> None:
        self.errors = PendingErrors(torch.cuda)
        python = ctypes.pythonapi
        self._kept = ctypes.create_string_buffer(b"torch.cuda"), self.errors.returning(fired)
        self._destructor = CodePage().add(
            TRACE,
            [
                ctypes.addressof(self._kept[0]),
                self.errors.import_module,
                address_of(python.Py_DecRef),
                id(self._kept[1]),
                address_of(python.PyObject_CallNoArgs),
                address_of(python.Py_DecRef),
            ],
        )
        self._new = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )(address_of(python.PyCapsule_New))

    def __call__(self) -> Any:
        return self._new(8, b"capsule", self._destructor)


def fail() -> Any:
    raise KeyError("mine")


def test_an_exception_passes_what_it_drops() -> None:
    fired: list[list[int]] = []
    made = Dropped(lambda: fired.append(sorted([2, 1])))
    for _ in range(100):
        with pytest.raises(TypeError, match="not subscriptable"):
            made()[0]
        with pytest.raises(KeyError, match="mine") as caught:
            _ = made(), [made(), made(), fail()]
        assert caught.traceback[-1].name == "fail"
    made()  # with no exception pending
    assert fired == [[1, 2]] * 401


def test_a_registry_may_fail_and_drop_such_objects_itself() -> None:
    fired: list[str] = []

    def outer() -> None:
        try:
            _ = inner(), [inner(), fail()]
        except KeyError as error:
            fired.append(f"caught {error}")

    inner = Dropped(lambda: fired.append("inner"))
    made = Dropped(outer)
    with pytest.raises(TypeError, match="not subscriptable"):
        made()[0]
    assert fired == ["inner", "inner", "caught 'mine'"]


def test_each_thread_has_its_own() -> None:
    made = Dropped(lambda: None)
    wrong: list[object] = []

    def work(name: str) -> None:
        for _ in range(2000):
            try:
                _ = made(), int(name)
            except ValueError as error:  # noqa: PERF203 -- this is what is looked at
                if name not in str(error):
                    wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert wrong == []


LIBRARY = """
extern void *PyImport_ImportModule(const char *);
void *import_module(const char *name) { return PyImport_ImportModule(name); }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_imports_of_one_library_are_answered_here(tmp_path: Path) -> None:
    source, path = tmp_path / "imports.c", str(tmp_path / "imports.so")
    source.write_text(LIBRARY, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, str(source)], check=True)
    assert slots(path, "PyImport_ImportModule") == []  # not loaded yet
    library = ctypes.PyDLL(path)
    library.import_module.restype = ctypes.py_object
    assert slots(path, "PyImport_Import") == []
    (slot,) = slots(path, "PyImport_ImportModule")
    stand_in = object()
    assert fill(slot, PendingErrors(stand_in).import_module)
    assert library.import_module(b"torch.cuda") is stand_in
    assert library.import_module(b"json") is sys.modules["json"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        library.import_module(b"no_such_module")


INSTALLED = """
from torch.cuda import _gpu_trace
from streamsan.record._pending import keep_pending_errors

seen = []
_gpu_trace.register_callback_for_memory_deallocation(seen.append)
assert keep_pending_errors()
_gpu_trace.MemoryDeallocationCallbacks.fire_callbacks(512)
assert seen == [512]
"""


def test_torchs_library_is_found_and_its_callbacks_still_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
