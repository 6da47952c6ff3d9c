"""The intermediate code (TTIR) of Triton kernels that C++ code loads as binaries.

Where this process compiled the kernel, its TTIR was noted together with the binary (cubin); else
Triton's cache may still have both. The same binary is the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class _Compiled(NamedTuple):
    """A kernel's binary, and its TTIR."""

    cubin: bytes
    ttir: str


class Cubins:
    """Finds the TTIR of kernels; `folder` names Triton's cache."""

    def __init__(self, folder: Callable[[], str]) -> None:
        self._folder = folder
        self._noted: dict[str, list[_Compiled]] = {}

    def note(self, name: str, cubin: bytes, ttir: str) -> None:
        """A kernel was compiled."""
        noted = self._noted.setdefault(name, [])
        if all(known.cubin != cubin for known in noted):
            noted.append(_Compiled(cubin, ttir))

    def ttir(self, name: str, file: Path) -> str | None:
        """The TTIR of a kernel that was loaded from a file: its binary, or one with it inside."""
        try:
            content = file.read_bytes()
        except OSError:
            return None
        known = (k for found in (self._noted.get(name, ()), self._cached(name)) for k in found)
        return next((k.ttir for k in known if k.cubin in content), None)

    def _cached(self, name: str) -> Iterator[_Compiled]:
        """Kernels of this name in Triton's cache."""
        for cubin in Path(self._folder()).glob(f"*/{name}.cubin"):
            with suppress(OSError, UnicodeDecodeError):
                yield _Compiled(cubin.read_bytes(), cubin.with_suffix(".ttir").read_text("utf-8"))
