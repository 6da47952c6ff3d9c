"""Which bytes an array has, and which of them an index takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsan.model.extent import Extent, canonical

_FEW = 16
"""Pieces of memory that are told one by one, at most."""

_MANY = 1 << 20
"""Elements of an array, at most, for which it is found out what an index takes."""


def whole(array: Any) -> Extent | None:
    """The bytes of an array or a memoryview; None where it has none."""
    array = np.asarray(array)
    address = int(array.__array_interface__["data"][0])
    sizes, strides = [], []
    for size, stride in zip(array.shape, array.strides):
        if stride < 0 and size:  # from its lowest byte on
            address += (size - 1) * stride
        sizes.append(size)
        strides.append(abs(stride))
    return canonical(address, 1, (*sizes, array.itemsize), (*strides, 1))


def taken(array: Any, key: Any) -> list[tuple[Extent, bool]]:
    """The bytes of ``array[key]``; False with those of which only some may be."""
    array = np.asarray(array)
    part = None if _is_element(array, key) else array[key]
    shared = isinstance(part, np.ndarray) and np.may_share_memory(part, array)
    if shared or array.size > _MANY:
        found = whole(part if shared else array)
        return [] if found is None else [(found, shared)]
    pieces = _pieces(array, key)
    exact: list[tuple[Extent, bool]] = [
        ((low, high - low, (), ()), True) for low, high in pieces[:_FEW]
    ]
    if len(pieces) > _FEW:
        low, high = pieces[_FEW][0], pieces[-1][1]
        exact.append(((low, high - low, (), ()), False))
    return exact


def _pieces(array: Any, key: Any) -> list[tuple[int, int]]:
    """The stretches of memory that the elements of ``array[key]`` fill: first byte, and end."""
    base, item = int(array.__array_interface__["data"][0]), array.itemsize
    pieces: list[tuple[int, int]] = []
    for offset in sorted(set(np.asarray(_offsets(array, key)).ravel().tolist())):
        low = base + offset
        if pieces and pieces[-1][1] == low:
            low = pieces.pop()[0]
        pieces.append((low, base + offset + item))
    return pieces


def _is_element(array: Any, key: Any) -> bool:
    keys = key if type(key) is tuple else (key,)
    return len(keys) == array.ndim and all(
        isinstance(k, int | np.integer) and not isinstance(k, bool) for k in keys
    )


def _offsets(array: Any, key: Any) -> Any:
    """Where the elements of ``array[key]`` are, in bytes from the array's first one."""
    if _is_element(array, key):
        keys = key if type(key) is tuple else (key,)
        return sum(
            (int(k) % size) * stride for k, size, stride in zip(keys, array.shape, array.strides)
        )
    offsets = np.zeros(array.shape, np.int64)
    for axis, (size, stride) in enumerate(zip(array.shape, array.strides)):
        shape = [size if axis == other else 1 for other in range(array.ndim)]
        offsets += (np.arange(size, dtype=np.int64) * stride).reshape(shape)
    return offsets[key]
