"""Which arrays a CuPy kernel is given, and which of them it writes, where CuPy says so.

Elementwise and reduction kernels take their arrays in the order inputs, outputs. A kernel object of
the program's knows its outputs, and those of CuPy's own functions are named ``cupy_`` and what they
do, with as many outputs as the function of that name has. A raw kernel is given the addresses of
arrays alone; the arrays themselves are among the arguments of the call.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType, ModuleType
from typing import Any

from streamsan.record.cupti._arrays import Array

_OWN = re.compile(r"(cupy_\w+?)(__\w+)?")
"""The name of a kernel of CuPy's own: of the function, and of the types it was compiled for."""


class _Running(threading.local):
    """Per thread: the number of outputs of the kernel object that is being called, and the arrays
    that it was given, by address.
    """

    outputs: int | None = None
    arrays: Mapping[int, Array] = MappingProxyType({})


_running = _Running()


def declared_outputs(name: str) -> int | None:
    """How many of the arrays of a kernel, the last ones, it writes; None where nobody says."""
    if _running.outputs is not None:
        return _running.outputs
    own = _OWN.fullmatch(name)
    cupy = sys.modules.get("cupy")
    return _functions(cupy).get(own[1], 1) if own and cupy is not None else None


@lru_cache(maxsize=1)
def _functions(cupy: ModuleType) -> dict[str, int]:
    """The numbers of outputs of CuPy's functions, by the names of their kernels."""
    return {
        value.name: value.nout
        for value in vars(cupy).values()
        if isinstance(getattr(value, "nout", None), int) and isinstance(value.name, str)
    }


def given_array(address: int) -> Array | None:
    """The array at an address, if the kernel object that is being called was given one there."""
    return _running.arrays.get(address)


class _AlsoOriginal(type):
    """Objects that CuPy made itself are of its own class, and have to pass for ours as well."""

    original: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.original)


def declare(module: Any, name: str) -> None:
    """Have a class of kernel objects say how many outputs the one has that is being called."""
    original: Any = getattr(module, name, None)
    if original is None:
        return

    class Kernel(original, metaclass=_AlsoOriginal):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            _running.outputs = len(self.out_params)
            try:
                return super().__call__(*args, **kwargs)
            finally:
                _running.outputs = None

    _pass_for(Kernel, original)
    _replace(module, name, original, Kernel)


def declare_raw(module: Any, name: str) -> None:
    """Have a class of raw kernels say which arrays the one is given that is being called."""
    original: Any = getattr(module, name, None)
    if original is None:
        return

    class Kernel(original, metaclass=_AlsoOriginal):  # type: ignore[misc]
        def __call__(self, grid: Any, block: Any, args: Any, *more: Any, **kwargs: Any) -> Any:
            _running.arrays = {a.address: a for a in map(_array, args) if a is not None}
            try:
                return super().__call__(grid, block, args, *more, **kwargs)
            finally:
                del _running.arrays

    _pass_for(Kernel, original)
    _replace(module, name, original, Kernel)


def _replace(module: Any, name: str, original: type, kind: type) -> None:
    """Put a class in the place of another one, also where pickled objects say that it is made."""
    setattr(module, name, kind)
    home = sys.modules.get(original.__module__)
    if getattr(home, original.__name__, None) is original:
        setattr(home, original.__name__, kind)


def _pass_for(kind: Any, original: type) -> None:
    kind.original = original
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(kind, attribute, getattr(original, attribute))


def _array(value: Any) -> Array | None:
    """An argument as an array, by ``__cuda_array_interface__``; its strides may be left out."""
    try:
        told = value.__cuda_array_interface__
        shape, item = tuple(told["shape"]), int(told["typestr"][2:])
        strides = told.get("strides") or tuple(
            item * prod(shape[axis + 1 :]) for axis in range(len(shape))
        )
        return Array(int(told["data"][0]), shape, tuple(strides), item)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):
        return None  # a number; or a tensor that needs a gradient, which says no
