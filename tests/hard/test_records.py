"""Records that can be decoded and make no sense: the checker goes on, and every report is made."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan import report
from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.model.extent import overlaps
from tests.hard.hostile import RECORD


@settings(max_examples=400, deadline=None)
@given(st.lists(RECORD, max_size=40))
def test_no_record_breaks_the_checker(records: list[r.AnyRecord]) -> None:
    checker = Checker()
    for record in records:
        checker.feed(record)
    found = checker.report()
    operations = [record for record in records if isinstance(record, r.Operation)]
    assert found.summary.operations == len(operations)
    assert found.verdict == ("races" if found.races else "clean")
    view = report.View(sources={}, base="", limit=None, verbose=True)
    for form in report.FORMATS:
        assert report.render(found, form, view)


def test_accesses_that_name_no_bytes_are_told() -> None:
    checker = Checker()
    bad = [
        r.Access(0, 0, 0, (), (), 2, "x"),
        r.Access(0, 0, -4, (), (), 2, "x"),
        r.Access(0, 0, 4, (2,), (), 2, "x"),
        r.Access(0, 0, 4, (2,), (0,), 2, "x"),
        r.Access(0, 0, 4, (-2,), (8,), 2, "x"),
        r.Access(0, 0, 4, (2,) * 65, (8,) * 65, 2, "x"),
    ]
    checker.feed(r.Operation(1, 0, "kernel", 1, 0, 0, tuple(bad)))
    assert "6 accesses were left out: they name no bytes" in checker.report().summary.blind_spots


def test_views_too_intricate_to_compare_are_told_and_count_as_apart() -> None:
    strides = tuple(1 << 40 | 3 << k for k in range(36))
    left = (0, 1, (2,) * 36, strides)
    right = (sum(strides) // 2 + 1, 1, (2,) * 36, strides)
    assert overlaps(left, right) is None
    checker = Checker()
    for timeline, extent in ((1, left), (2, right)):
        access = r.Access(0, *extent, 2, "x")
        checker.feed(r.Operation(timeline, 0, "kernel", timeline, 0, 0, (access,)))
    found = checker.report()
    assert not found.races
    assert any("too intricate" in text for text in found.summary.blind_spots)
