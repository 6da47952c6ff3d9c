"""Kernels as the driver knows them: their names, and the sizes of their parameters."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from streamsan.record.cupti._arrays import Parameter, from_buffer, from_pointers
from streamsan.record.cupti._calls import Launch

_NUMBA = re.compile(r"_ZN(\d.*?)B\d+v\d")
"""A function compiled by numba: its names, then a tag with the number of the version."""

_CONSTANT = re.compile(r" const(?: volatile)?\*$")
"""How the type of a pointer to a constant ends, as the C++ library writes it."""

_MOST = 4096
"""Kernels remembered; handles of unloaded ones come again, so that there is no end to keep them
for."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its name, the size in bytes of each parameter, and which of them are pointers
    through which it can only read.
    """

    name: str
    sizes: tuple[int, ...]
    constant: frozenset[int] = frozenset()


class Kernels:
    """Asks the driver about functions, once each."""

    def __init__(self, driver: Any) -> None:
        """`driver` is CUDA's driver library."""
        self._driver = driver
        self._known: dict[tuple[int, bytes], Kernel] = {}

    def kernel(self, function: int, symbol: bytes) -> Kernel:
        """The kernel of a function's handle; `symbol` is its name in the binary."""
        key = function, symbol
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            text = symbol.decode(errors="replace")
            found = Kernel(plain_name(text), self._sizes(function), constant_pointers(text))
            self._known[key] = found
        return found

    def parameters(self, kernel: Kernel, launch: Launch) -> list[Parameter]:
        """The words of the parameters of a launch."""
        if launch.pointers and kernel.sizes:
            return from_pointers(launch.pointers, kernel.sizes)
        return from_buffer(launch.buffer, launch.size) if launch.buffer else []

    def _sizes(self, function: int) -> tuple[int, ...]:
        """A handle may be a function's of one context, or a kernel's of all contexts."""
        for name in ("cuFuncGetParamInfo", "cuKernelGetParamInfo"):
            ask = getattr(self._driver, name, None)
            sizes: list[int] = []
            at, size = ctypes.c_size_t(), ctypes.c_size_t()
            while ask is not None and not ask(
                ctypes.c_void_p(function),
                ctypes.c_size_t(len(sizes)),
                ctypes.byref(at),
                ctypes.byref(size),
            ):
                sizes.append(size.value)
            if sizes:
                return tuple(sizes)
        return ()


def plain_name(symbol: str) -> str:
    """The name that a programmer gave a kernel, without the types of its parameters."""
    if numba := _NUMBA.match(symbol):
        return _nested(numba[1])
    text = _demangled(symbol) if symbol.startswith("_Z") else symbol
    return text[: _parenthesis(text)].removeprefix("void ").strip() or symbol


def constant_pointers(symbol: str) -> frozenset[int]:
    """The numbers of a kernel's parameters that are pointers to constants (``float const*``), as
    far as the name in the binary tells of types.
    """
    text = _demangled(symbol) if symbol.startswith("_Z") else ""
    parts, depth = [""], 0
    for sign in text[_parenthesis(text) + 1 : -1]:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return frozenset(i for i, part in enumerate(parts) if _CONSTANT.search(part))


def _parenthesis(text: str) -> int:
    """Where a function's parameters begin, or the end of the text."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and not depth and at and not text.startswith("(anonymous", at):
            return at
    return len(text)


def _nested(text: str) -> str:
    """The names in a mangled one, each behind its length, with points between them."""
    names = []
    while number := re.match(r"\d+", text):
        end = number.end() + int(number[0])
        names.append(text[number.end() : end])
        text = text[end:]
    return ".".join(names)


def _demangled(symbol: str) -> str:
    """A C++ name in full, by the C++ library's own means; as it is where there are none."""
    demangle = _demangler()
    if demangle is None:
        return symbol
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        _free(text)


@lru_cache(maxsize=1)
def _demangler() -> Any:
    try:
        found = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    found.restype = ctypes.c_void_p
    return found


def _free(address: int) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    free(address)
