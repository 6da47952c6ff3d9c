"""Strided accesses against sets of bytes: two race where they share a byte, and nowhere else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamsan.model import records as r
from streamsan.model.extent import Extent, canonical, overlaps
from tests.exact.examples import examples
from tests.exact.machine import addresses
from tests.unit.builder import Trace

DIMENSION = st.tuples(st.integers(1, 7), st.integers(0, 24))
VIEW = st.tuples(st.integers(0, 90), st.sampled_from([1, 2, 4]), st.lists(DIMENSION, max_size=3))
View = tuple[int, int, list[tuple[int, int]]]


def touched(view: View) -> tuple[set[int], Extent]:
    """The bytes of a view, element by element, and its extent."""
    address, itemsize, dims = view
    sizes, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    extent = canonical(address, itemsize, sizes, strides)
    assert extent is not None
    in_bytes = tuple(stride * itemsize for stride in strides)
    found = addresses(r.Access(0, address, itemsize, sizes, in_bytes, r.Mode.READ, ""))
    return found, extent


@examples(400)
@given(VIEW, VIEW)
def test_two_views_overlap_where_they_share_a_byte(left: View, right: View) -> None:
    (one, left_extent), (two, right_extent) = touched(left), touched(right)
    assert overlaps(left_extent, right_extent) == bool(one & two)


def test_the_runs_of_a_view_that_overlaps_itself_are_all_kept() -> None:
    """Its runs come out of order: 81, 101, ... and then 96, which ends within the one at 101."""
    trace = Trace()
    twisted = canonical(81, 1, (2, 5, 7), (15, 20, 1))
    assert twisted is not None
    trace.op(trace.stream(line=101), write=[twisted], line=1)
    trace.op(trace.stream(line=102), read=[(103, 107)], line=2)
    assert trace.races() == [(1, 2)]


@examples(400)
@given(st.lists(st.tuples(VIEW, st.booleans()), min_size=2, max_size=6))
def test_the_views_of_a_program_race_where_they_share_a_byte(
    views: list[tuple[View, bool]],
) -> None:
    """Each view is used on a stream of its own, in whatever form the shadow memory keeps it."""
    trace = Trace()
    used: list[tuple[set[int], bool]] = []
    want = set()
    for number, (view, writes) in enumerate(views):
        mine, extent = touched(view)
        access: dict[str, Any] = {"write" if writes else "read": [extent]}
        trace.op(trace.stream(line=100 + number), line=number + 1, **access)
        want |= {
            (earlier + 1, number + 1)
            for earlier, (other, wrote) in enumerate(used)
            if (writes or wrote) and mine & other
        }
        used.append((mine, writes))
    assert set(trace.races()) == want
