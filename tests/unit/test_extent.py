"""Extents: canonical form and exact overlap, against sets of bytes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.model.extent import Extent, canonical, count, overlaps, runs, span
from tests.unit.oracle import bytes_of

DIMENSIONS = st.lists(st.tuples(st.integers(2, 5), st.integers(1, 40)), max_size=3)
EXTENT = st.builds(
    lambda address, run, dims: (address, run, tuple(n for n, _ in dims), tuple(s for _, s in dims)),
    st.integers(0, 60),
    st.integers(1, 6),
    DIMENSIONS,
)


@settings(max_examples=600, deadline=None)
@given(EXTENT, EXTENT)
def test_overlap_is_that_of_the_bytes(left: Extent, right: Extent) -> None:
    assert overlaps(left, right) == bool(bytes_of(left) & bytes_of(right))
    assert overlaps(left, right) == overlaps(right, left)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=3),
)
def test_canonical_keeps_the_bytes(itemsize: int, dims: list[tuple[int, int]]) -> None:
    sizes, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    elements = product(*(range(n) for n in sizes))
    offsets = [sum(i * s for i, s in zip(index, strides)) * itemsize for index in elements]
    want = {100 + low + byte for low in offsets for byte in range(itemsize)}
    extent = canonical(100, itemsize, sizes, strides)
    assert (bytes_of(extent) if extent else set()) == want
    if extent:
        assert span(extent) == (min(want), max(want) + 1)
        assert len(list(runs(extent))) == count(extent)


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        pytest.param((0, 4, (512,), (8,)), (4, 4, (512,), (8,)), False, id="interleaved columns"),
        pytest.param((0, 1028, (512,), (2048,)), (1024, 1024, (512,), (2048,)), True,
                     id="column ranges that share a column"),
        pytest.param((0, 4, (512,), (513 * 4,)), (4, 4, (511,), (513 * 4,)), False,
                     id="two diagonals"),
        pytest.param((0, 4, (512,), (513 * 4,)), (2048 * 7, 2048, (), ()), True,
                     id="diagonal and row"),
        pytest.param((0, 4, (512,), (513 * 4,)), (511 * 4, 4, (512,), (511 * 4,)), False,
                     id="diagonal and anti-diagonal of an even square"),
        pytest.param((0, 12, (10,), (8,)), (84, 4, (), ()), False, id="windows end before"),
        pytest.param((0, 12, (10,), (8,)), (80, 4, (), ()), True, id="last window"),
        pytest.param((0, 4, (512, 512, 64), (2064, 513 * 2048, 2056)),
                     (2, 1, (512, 512), (2052, 512 * 2048 + 12)), True, id="five dimensions"),
    ],
)  # fmt: skip
def test_overlap_of_views(left: Extent, right: Extent, want: bool) -> None:
    assert overlaps(left, right) is want
