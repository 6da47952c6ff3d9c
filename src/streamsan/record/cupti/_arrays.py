"""What a kernel may touch, by the words of its parameters.

A pointer among them tells little: the block that it points into, all of which the kernel may read
and write. Two libraries pass more than pointers, in a layout that is checked word by word before it
is believed, so that the bytes of an array are known exactly:

- CuPy gives an array as one parameter: data, size, shape, strides (``CArray`` in
  ``cupy/_core/include/cupy/carray.cuh``);
- numba gives an array as a run of parameters: memory information, parent, items, item size, data,
  shape, strides (its array type's data model, flattened).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

_MOST = 32
"""Most dimensions of an array, as in NumPy."""

_LOWEST = 1 << 20
_HIGHEST = 1 << 56
"""Words outside of these are no addresses: the first pages are never mapped."""


@dataclass(frozen=True, slots=True)
class Array:
    """Bytes of a strided array; `item` is 0 where its size is not among the parameters."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item: int


@dataclass(frozen=True, slots=True)
class Argument:
    """A pointer among the parameters, the number of the parameter, and the array if it is one."""

    number: int
    address: int
    array: Array | None = None


Parameter = tuple[int, ...]
"""The words of one parameter, the last one filled up with zeros."""


def from_pointers(pointers: int, sizes: Sequence[int]) -> list[Parameter]:
    """Parameters of given sizes, whose addresses are in an array at `pointers`."""
    where = (ctypes.c_uint64 * len(sizes)).from_address(pointers)
    return [_words(ctypes.string_at(at, size)) for at, size in zip(where, sizes, strict=True)]


def from_buffer(buffer: int, size: int) -> list[Parameter]:
    """Parameters that lie in one buffer: each word as one of its own."""
    return [(word,) for word in _words(ctypes.string_at(buffer, size))]


def _words(data: bytes) -> Parameter:
    filled = data + bytes(-len(data) % 8)
    return tuple(int.from_bytes(filled[at : at + 8], "little") for at in range(0, len(filled), 8))


def arguments(parameters: Sequence[Parameter]) -> Iterator[Argument]:
    """The pointers among parameters, and the arrays that are recognised."""
    number = 0
    while number < len(parameters):
        words = parameters[number]
        array = _cupy_array(words)
        if array is not None:
            yield Argument(number, array.address, array)
            number += 1
            continue
        array = _numba_array(parameters, number)
        if array is not None:
            yield Argument(number + 4, array.address, array)
            number += 5 + 2 * len(array.shape)
            continue
        for word in words:
            if _LOWEST <= word < _HIGHEST:
                yield Argument(number, word)
        number += 1


def _cupy_array(words: Parameter) -> Array | None:
    """``data, size, shape..., strides...`` in one parameter."""
    dimensions, odd = divmod(len(words) - 2, 2)
    if odd or not 0 <= dimensions <= _MOST or not _LOWEST <= words[0] < _HIGHEST:
        return None
    shape = words[2 : 2 + dimensions]
    if prod(shape) != words[1] or (not dimensions and words[1] != 1):
        return None
    return Array(words[0], shape, tuple(map(_signed, words[2 + dimensions :])), 0)


def _numba_array(parameters: Sequence[Parameter], first: int) -> Array | None:
    """``information, parent, items, item size, data, shape..., strides...``, one word each.

    Both references to objects of the host's are null on the device. The number of dimensions is
    the least for which the shape has as many items as are told.
    """
    run = [words[0] for words in parameters[first : first + 5 + 2 * _MOST] if len(words) == 1]
    if len(run) < 7 or run[0] or run[1] or not _LOWEST <= run[4] < _HIGHEST or not run[3]:
        return None
    for dimensions in range(1, (len(run) - 5) // 2 + 1):
        shape = tuple(run[5 : 5 + dimensions])
        strides = tuple(map(_signed, run[5 + dimensions : 5 + 2 * dimensions]))
        if prod(shape) == run[2] and all(stride % run[3] == 0 for stride in strides):
            return Array(run[4], shape, strides, run[3])
    return None


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
