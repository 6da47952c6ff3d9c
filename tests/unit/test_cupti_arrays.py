"""Arrays among the parameters of kernels, in the layouts of CuPy and numba."""

from __future__ import annotations

import ctypes

import pytest

from streamsan.model.extent import Extent
from streamsan.record.cupti._arrays import Array, arguments, from_buffer, from_pointers
from streamsan.record.cupti._kernels import constant_pointers, plain_name
from streamsan.record.cupti._touched import array_extent

A, B = 0x7FA557A20400, 0x7FA557A21400
MINUS = (1 << 64) - 4


def numba_array(address: int, shape: tuple[int, ...], item: int = 4) -> list[tuple[int, ...]]:
    """The run of parameters for a dense array."""
    items = 1
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, items * item)
        items *= extent
    return [(word,) for word in (0, 0, items, item, address, *shape, *strides)]


def test_pointers_and_plain_values() -> None:
    found = list(arguments([(A,), (1024,), (B, 1000, A), (0x40000000,)]))
    assert [(f.number, f.address) for f in found[:3]] == [(0, A), (2, B), (2, A)]


def test_an_array_of_cupy() -> None:
    (found,) = arguments([(A, 1000, 50, 20, 4, 200)])
    assert found.array == Array(A, (50, 20), (4, 200), 0)


def test_what_only_looks_like_an_array() -> None:
    (found,) = arguments([(A, 999, 50, 20, 4, 200)])  # the size is not that of the shape
    assert found.array is None
    assert list(arguments([(1000, 50, 20, 7, 9)])) == []  # the items to work on


def test_arrays_of_numba() -> None:
    parameters = [*numba_array(A, (1024,)), *numba_array(B, (8, 16)), (1000,)]
    first, second = arguments(parameters)
    assert first.array == Array(A, (1024,), (4,), 4)
    assert second.array == Array(B, (8, 16), (64, 4), 4)


@pytest.mark.parametrize(
    ("array", "extent"),
    [
        (Array(A, (1000,), (4,), 0), (A, 4000, (), ())),
        (Array(A, (), (), 0), (A, 1, (), ())),
        (Array(A, (1,), (8,), 0), (A, 8, (), ())),
        (Array(A, (50, 20), (4, 200), 0), (A, 4000, (), ())),
        (Array(A, (10,), (8,), 4), (A, 4, (10,), (8,))),
        (Array(A + 36, (10,), (-4,), 4), (A, 40, (), ())),
        (Array(A, (0, 4), (16, 4), 4), None),
        (Array(A, (5, 4), (0, 4), 4), (A, 16, (), ())),
    ],
)
def test_bytes_of_arrays(array: Array, extent: Extent | None) -> None:
    assert array_extent(array) == extent


def test_negative_strides_are_read_as_such() -> None:
    (found,) = arguments([(A, 3, 3, MINUS)])
    assert found.array is not None
    assert found.array.strides == (-4,)


def test_parameters_by_pointers_and_in_a_buffer() -> None:
    value, pair = ctypes.c_uint32(7), (ctypes.c_uint64 * 2)(A, B)
    where = (ctypes.c_uint64 * 2)(ctypes.addressof(value), ctypes.addressof(pair))
    assert from_pointers(ctypes.addressof(where), (4, 16)) == [(7,), (A, B)]
    assert from_buffer(ctypes.addressof(pair), 16) == [(A,), (B,)]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("cupy_add__float32_float_float32", "cupy_add__float32_float_float32"),
        ("_Z5scalePfif", "scale"),
        ("_ZN12_GLOBAL__N_11kEv", "(anonymous namespace)::k"),
        ("_ZN8__main__6doubleB2v1B96cw51cXTLSUwv1sCUt9Uw1VEw0NRRQPKzLTg4g", "__main__.double"),
    ],
)
def test_names_without_parameters(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


@pytest.mark.parametrize(
    ("symbol", "constant"),
    [
        ("_Z5scalePKfPfi", {0}),
        ("_Z3fooIfEvPT_PKS0_RKi", {1}),
        ("_ZN2at4copyILi512EEEvPKfPVKfPf", {0, 1}),
        ("_Z4pairPKSt4pairIPKfPfES3_", {0}),
        ("_Z5emptyv", set()),
        ("triton_poi_fused_add_0", set()),
        ("_Znot a name", set()),
    ],
)
def test_pointers_to_constants_stand_in_a_kernel_s_name(symbol: str, constant: set[int]) -> None:
    assert constant_pointers(symbol) == constant
