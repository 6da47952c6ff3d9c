"""Strided accesses against sets of bytes: two race where they share a byte, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsan.detect import _segments
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


SHAPE = st.tuples(st.sampled_from([1, 2, 4]), st.lists(DIMENSION, max_size=3))
USE = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 90), st.booleans())


@examples(400)
@given(st.lists(SHAPE, max_size=2), st.lists(st.one_of(USE, st.none()), min_size=4, max_size=16))
def test_each_of_many_views_on_a_stream_is_compared(
    shapes: list[tuple[int, list[tuple[int, int]]]], uses: list[tuple[int, int, int, bool] | None]
) -> None:
    """Views of a few shapes, or dense ones, on two streams; None: the host waits for the first."""
    trace = Trace()
    streams = trace.stream(line=101), trace.stream(line=102)
    used: list[tuple[int, set[int], bool, int]] = []
    want = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_segments, "_ROOM", 1)
        for line, use in enumerate(uses, 1):
            if use is None:
                trace.stream_sync(streams[0])
                used = [known for known in used if known[0] == 1]
                continue
            shape, stream, address, writes = use
            itemsize, dims = shapes[shape] if shape < len(shapes) else (4, [(6, 1)])
            mine, extent = touched((address, itemsize, dims))
            access: dict[str, Any] = {"write" if writes else "read": [extent]}
            trace.op(streams[stream], line=line, **access)
            want |= {
                (earlier, line)
                for other, theirs, wrote, earlier in used
                if other != stream and (writes or wrote) and mine & theirs
            }
            used.append((stream, mine, writes, line))
        assert set(trace.races()) == want
