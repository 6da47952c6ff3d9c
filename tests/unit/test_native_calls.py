"""Functions for C++ code to call: their arguments, their failures, and the interpreter's end."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamsan.errors import UsageError
from streamsan.record._native_calls import NativeCalls
from streamsan.record._native_code import supported

pytestmark = pytest.mark.skipif(not supported(), reason="needs Linux on x86-64")

SIZE = ctypes.c_size_t
MALLOC = ctypes.CFUNCTYPE(SIZE, SIZE, ctypes.c_int, SIZE)
FREE = ctypes.CFUNCTYPE(None, SIZE, SIZE, ctypes.c_int, SIZE)

CATCHER = """
#include <cstdint>
#include <functional>
#include <new>
extern "C" uint64_t call(uint64_t address, uint64_t size) {
  std::function<void*(size_t, int, void*)> function =
      reinterpret_cast<void* (*)(size_t, int, void*)>(address);
  try {
    return reinterpret_cast<uint64_t>(function(size, 3, reinterpret_cast<void*>(7)));
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
"""


@pytest.fixture(scope="module")
def calls() -> NativeCalls:
    return NativeCalls()


def test_arguments_and_results_pass_through(calls: NativeCalls) -> None:
    seen: list[tuple[int, ...]] = []

    def malloc(size: int, device: int, stream: int) -> int:
        seen.append((size, device, stream))
        return (1 << 47) + 512

    large = (1 << 40) + 3
    assert MALLOC(calls.returning(malloc))(large, 2, 1 << 46) == (1 << 47) + 512
    free = FREE(calls.notifying(lambda *got: seen.append(got), SIZE, SIZE, ctypes.c_int, SIZE))
    free(1 << 47, large, 5, 1 << 46)
    assert seen == [(large, 2, 1 << 46), (1 << 47, large, 5, 1 << 46)]


def test_threads_of_others_may_call(calls: NativeCalls) -> None:
    idents = set()

    def malloc(size: int, *_: int) -> int:
        idents.add(threading.get_ident())
        return size

    address = calls.returning(malloc)
    threads = [threading.Thread(target=MALLOC(address), args=(n, 0, 0)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert threading.get_ident() not in idents


def test_exception_on_its_way_is_kept(calls: NativeCalls) -> None:
    """As with a tensor that a statement made and drops because it raises."""
    freed: list[int] = []
    destructor = calls.notifying(freed.append, SIZE)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = SIZE, ctypes.c_char_p, SIZE

    with pytest.raises(TypeError, match="not subscriptable"):
        new(8, b"capsule", destructor)[0]
    assert len(freed) == 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_failure_is_a_cpp_exception(calls: NativeCalls, tmp_path: Path) -> None:
    source, library = tmp_path / "catcher.cpp", tmp_path / "catcher.so"
    source.write_text(CATCHER, encoding="utf-8")
    command = ["g++", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    call = ctypes.CDLL(str(library)).call
    call.argtypes, call.restype = (ctypes.c_uint64, ctypes.c_uint64), ctypes.c_uint64

    address = calls.returning(lambda size, *_: 0x1000 if size < 100 else 0)
    assert call(address, 99) == 0x1000
    assert call(address, 100) == 1
    assert call(address, 99) == 0x1000


LATE = """
import ctypes
from streamsan.record._native_calls import NativeCalls

calls = NativeCalls()
free = calls.notifying(lambda: print("python still runs", flush=True))
ctypes.CDLL(None).__cxa_atexit(ctypes.c_void_p(free), None, None)
print("end of the program", flush=True)
"""


def test_call_after_the_interpreters_end_does_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end of the program\n"
    assert done.stderr == ""


def test_other_machines_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="needs Linux on x86-64: use --device virtual"):
        NativeCalls()
