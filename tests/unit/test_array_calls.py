"""What a call of NumPy touches: which bytes, read or written, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsan.model import records as r
from streamsan.model.extent import Extent, stretches
from streamsan.record._observer import Observer
from streamsan.record.arrays._calls import Calls
from streamsan.record.arrays._extents import taken, whole
from streamsan.record.arrays._functions import FUNCTIONS, METHODS, UFUNC_METHODS

LIKELY, POSSIBLE = int(r.Confidence.LIKELY), int(r.Confidence.POSSIBLE)
READ, WRITE, BOTH = int(r.Mode.READ), int(r.Mode.WRITE), int(r.Mode.READ_WRITE)
Told = list[tuple[str, int, int, int, int]]


class World:
    """A pinned array of eight numbers, one that is not, and what is told of calls."""

    def __init__(self) -> None:
        self.seen: list[r.AnyRecord] = []
        observer = Observer()
        observer.begin(self.seen.append, r.Header("cuda", {}, (), {}), ())
        self.pinned: Any = np.arange(8.0)
        self.other: Any = np.arange(8.0)
        self.start = self.pinned.ctypes.data
        self.calls = Calls(observer, lambda a: self.start <= a < self.start + self.pinned.nbytes)

    def told(self, name: str, owner: Any, *args: Any, **kwargs: Any) -> Told:
        """Argument, mode, first and last element, and confidence of what a call has touched."""
        self.calls(name, owner, args, kwargs)
        assert not [note for note in self.seen if isinstance(note, r.Note)]
        return [
            (
                access.argument,
                access.mode,
                (access.address - self.start) // 8,
                (access.address + access.run - self.start) // 8,
                access.confidence,
            )
            for record in self.seen
            if isinstance(record, r.Operation)
            for access in record.accesses
        ]


CALLS: dict[str, tuple[Callable[[World], Told], Told]] = {
    "operands are read, results written": (
        lambda w: w.told("ufunc", np.add, w.pinned[:4], w.other[:4], w.pinned[4:]),
        [("argument 1", READ, 0, 4, LIKELY), ("argument 3", WRITE, 4, 8, LIKELY)],
    ),
    "a result with a name": (
        lambda w: w.told("ufunc", np.add, w.other, w.other, out=(w.pinned,)),
        [("out", WRITE, 0, 8, LIKELY)],
    ),
    "with a mask, any of it": (
        lambda w: w.told("ufunc", np.negative, w.pinned, where=w.other > 3),
        [("argument 1", READ, 0, 8, POSSIBLE)],
    ),
    "what a reduction writes": (
        lambda w: w.told("ufunc.reduce", np.add, w.other, None, None, w.pinned[:1]),
        [("argument 4", WRITE, 0, 1, LIKELY)],
    ),
    "a reduction with a mask": (
        lambda w: w.told("ufunc.reduce", np.add, w.pinned, 0, None, None, False, 0, w.other > 3),
        [("argument 1", READ, 0, 8, POSSIBLE)],
    ),
    "arrays in a list": (
        lambda w: w.told("concatenate", None, [w.other, w.pinned[2:4]]),
        [("argument 1", READ, 2, 4, LIKELY)],
    ),
    "copies": (
        lambda w: w.told("copyto", None, w.pinned[:2], w.pinned[2:4]),
        [("argument 1", WRITE, 0, 2, LIKELY), ("argument 2", READ, 2, 4, LIKELY)],
    ),
    "a method reads its own array": (
        lambda w: w.told("ndarray.tolist", w.pinned),
        [("self", READ, 0, 8, LIKELY)],
    ),
    "or changes it": (
        lambda w: w.told("ndarray.sort", w.pinned),
        [("self", BOTH, 0, 8, LIKELY)],
    ),
    "or some of it": (
        lambda w: w.told("ndarray.put", w.pinned, [1], 2.0),
        [("self", WRITE, 0, 8, POSSIBLE)],
    ),
    "an element": (
        lambda w: w.told("ndarray.__getitem__", w.pinned, -1),
        [("self", READ, 7, 8, LIKELY)],
    ),
    "elements by a list": (
        lambda w: w.told("ndarray.__getitem__", w.pinned, [5, 1, 2]),
        [("self", READ, 1, 3, LIKELY), ("self", READ, 5, 6, LIKELY)],
    ),
    "elements by a mask": (
        lambda w: w.told("ndarray.__setitem__", w.pinned, w.other > 5, 1.0),
        [("self", WRITE, 6, 8, LIKELY)],
    ),
    "a slice is written, and what is put there read": (
        lambda w: w.told("ndarray.__setitem__", w.pinned, slice(0, 2), w.pinned[4:6]),
        [("self", WRITE, 0, 2, LIKELY), ("value", READ, 4, 6, LIKELY)],
    ),
    "a buffer for a moment is read": (
        lambda w: w.told("ndarray.__buffer__", w.pinned, 0, False),
        [("self", READ, 0, 8, LIKELY)],
    ),
    "one for later is not": (lambda w: w.told("ndarray.__buffer__", w.pinned, 0, True), []),
    "nor one to write to": (lambda w: w.told("ndarray.__buffer__", w.pinned, 1, False), []),
    "one for who knows what may be": (
        lambda w: w.told("ndarray.__buffer__", w.pinned, 0x1C, False),
        [("self", READ, 0, 8, POSSIBLE)],
    ),
    "an element of a memoryview": (
        lambda w: w.told("memoryview.__getitem__", memoryview(w.pinned), 3),
        [("self", READ, 3, 4, LIKELY)],
    ),
    "a part of one": (
        lambda w: w.told("memoryview.tobytes", memoryview(w.pinned)[2:5]),
        [("self", READ, 2, 5, LIKELY)],
    ),
    "memory that is not pinned": (lambda w: w.told("ndarray.tolist", w.other), []),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_touches(name: str) -> None:
    call, expected = CALLS[name]
    assert call(World()) == expected


def test_operations_have_the_names_of_numpy() -> None:
    world = World()
    world.told("ufunc", np.add, world.pinned, 1)
    world.told("ufunc.reduce", np.maximum, world.pinned)
    world.told("ndarray.tolist", world.pinned)
    world.told("memoryview.tolist", memoryview(world.pinned))
    names = [record.name for record in world.seen if isinstance(record, r.Operation)]
    expected = ["numpy.add", "numpy.maximum.reduce", "numpy.ndarray.tolist", "memoryview.tolist"]
    assert names == expected


def test_names_are_those_of_functions_that_numpy_has_or_had() -> None:
    had = {"itemset"}  # till 1.26
    core: Any = getattr(np, "_core", None) or np.core
    assert {name for name in METHODS if not hasattr(np.ndarray, name)} <= had
    assert all(hasattr(core._multiarray_umath, name) for name in FUNCTIONS)
    assert all(hasattr(np.ufunc, name) for name in UFUNC_METHODS)


ARRAY = np.zeros((6, 5, 4), np.int32)
SLICES = st.builds(
    slice,
    st.none() | st.integers(-7, 7),
    st.none() | st.integers(-7, 7),
    st.sampled_from([None, 1, 2, 3, -1, -2]),
)
KEYS = st.tuples(*(SLICES | st.integers(-size, size - 1) for size in ARRAY.shape)) | st.lists(
    st.integers(-6, 5), max_size=8
)


@given(st.tuples(SLICES, SLICES, SLICES), KEYS)
def test_an_index_takes_the_bytes_that_change_when_it_is_written(cut: Any, key: Any) -> None:
    array = ARRAY[cut]
    ARRAY[...] = 0
    try:
        array[key] = 1
    except IndexError:
        return
    base = ARRAY.ctypes.data
    changed = {base + 4 * int(place) for place in np.flatnonzero(ARRAY)}
    assert {place for extent, _ in taken(array, key) for place in words(extent)} == changed


def words(extent: Extent) -> set[int]:
    """The addresses of the words of four bytes in an extent."""
    return {place for low, high in stretches(extent) for place in range(low, high, 4)}


def test_of_many_pieces_the_first_are_sure() -> None:
    array = np.zeros(1000, np.int32)
    found = taken(array, np.arange(0, 1000, 10))
    base = array.ctypes.data
    assert [extent for extent, sure in found if sure] == [
        (base + 40 * index, 4, (), ()) for index in range(16)
    ]
    assert found[16:] == [((base + 640, 40 * 83 + 4, (), ()), False)]


def test_of_a_very_large_array_any_element_may_be() -> None:
    array = np.zeros((1 << 20) + 1, np.uint8)
    assert taken(array, [5]) == [((array.ctypes.data, array.size, (), ()), False)]
    assert taken(array, slice(2, 5)) == [((array.ctypes.data + 2, 3, (), ()), True)]


@given(st.tuples(SLICES, SLICES, SLICES))
def test_the_bytes_of_an_array(cut: Any) -> None:
    array = ARRAY[cut]
    ARRAY[...] = 0
    array[...] = 1
    base = ARRAY.ctypes.data
    extent = whole(array)
    assert (set() if extent is None else words(extent)) == {
        base + 4 * int(place) for place in np.flatnonzero(ARRAY)
    }
