"""What the program does with pinned memory through NumPy's arrays and memoryviews.

Such code calls nobody that could tell. So functions of these types are replaced by the compiled
core (record/compiled/hooks.c) with ones that call them and tell of the calls whose arguments lie in
memory that a device has copied from or to. Everything else costs a comparison.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from streamsan.record import _core
from streamsan.record._observer import Observer
from streamsan.record.arrays._functions import (
    FIELDS,
    FUNCTIONS,
    MEMORYVIEW,
    MEMORYVIEW_FIELDS,
    METHODS,
    NUMBER_FIELDS,
    SHARING_FIELDS,
    UFUNC_METHODS,
    Use,
)
from streamsan.virtual.face.exports import Exports

_GRAIN = 1 << 16
"""Bytes that are watched together: a program may have thousands of pinned blocks side by side."""


class Reached:
    """Pinned memory that a device has reached: stretches of addresses, ascending and apart."""

    def __init__(self, watch: Callable[[list[tuple[int, int]]], None], grain: int = _GRAIN) -> None:
        """`watch` is told of all stretches when they change. They begin and end at multiples of
        `grain`, so there may be memory in them that no device has reached.
        """
        self._watch = watch
        self._grain = grain
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """A device has copied from or to some bytes."""
        start -= start % self._grain
        end += -end % self._grain
        place = bisect_right(self._starts, start) - 1
        if place >= 0 and self._ends[place] >= end:
            return
        first = bisect_left(self._ends, start)  # those that touch it
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]
        self._watch(list(zip(self._starts, self._ends)))


def listen_to_arrays(
    observer: Observer, exports: Exports, is_pinned: Callable[[int], bool]
) -> bool:
    """Tell `observer` what arrays and memoryviews do with memory that `is_pinned` says is pinned.

    False where the compiled core is missing, or NumPy: nothing is seen of it then.
    """
    compiled = _core.arrays()
    try:
        import numpy as np

        from streamsan.record.arrays._calls import Calls
    except ImportError:
        return False
    if compiled is None:
        return False
    managed = type(gc.get_referents(memoryview(b" "))[0])
    compiled.watch_arrays(np.ndarray, managed, Calls(observer, is_pinned))
    _hook(compiled, np)
    exports.sees_uses = True
    exports.reached = Reached(compiled.watch_memory).add
    return True


def _hook(compiled: Any, np: Any) -> None:
    """Put all hooks in place."""
    core = getattr(np, "_core", None) or np.core
    for kind, names, methods in (
        (np.ndarray, {**FIELDS, **NUMBER_FIELDS}, METHODS),
        (memoryview, {**FIELDS, **MEMORYVIEW_FIELDS}, MEMORYVIEW),
        (np.ufunc, {}, UFUNC_METHODS),
    ):
        for field, name in names.items():
            shares = field in SHARING_FIELDS
            compiled.hook_field(kind, field, f"{kind.__name__}.{name}", shares)
        for name, use in methods.items():
            if name in vars(kind):
                _method(compiled, vars(kind)[name], f"{kind.__name__}.{name}", use)
    for name, use in FUNCTIONS.items():
        if hasattr(core._multiarray_umath, name):
            _method(compiled, getattr(core._multiarray_umath, name), name, use)
    for name, value in vars(core._methods).items():  # methods that are kept there, bound
        method = getattr(value, "__name__", "")
        if name.startswith("umr_") and method in UFUNC_METHODS:
            _method(compiled, value, f"ufunc.{method}", UFUNC_METHODS[method])
    for ufunc in _ufuncs(np, core):
        compiled.hook_object(ufunc, "ufunc")


def _method(compiled: Any, method: Any, name: str, use: Use) -> None:
    compiled.hook_method(method, name, use.shares, use.lends)


def _ufuncs(np: Any, core: Any) -> Iterator[Any]:
    """NumPy's universal functions."""
    for module in (
        core._multiarray_umath,
        getattr(np.linalg, "_umath_linalg", None),
        getattr(np.fft, "_pocketfft_umath", None),
    ):
        for value in vars(module).values() if module is not None else ():
            if isinstance(value, np.ufunc):
                yield value
