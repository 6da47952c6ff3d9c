"""Possible races: those in which an access is a guess. They are told apart and decide nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamsan import report
from streamsan.commands._outcome import exit_status
from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.model.findings import Finding, Report
from streamsan.report import View
from tests.unit import samples
from tests.unit.builder import Trace

VIEW = View(sources=samples.SOURCES, base=samples.FOLDER)


def guess(low: int, high: int, mode: int = 3) -> r.Access:
    """An access known by a pointer alone."""
    return r.Access(0, low, high - low, (), (), mode, "parameter 0", int(r.Confidence.POSSIBLE))


def lines(findings: list[Finding]) -> list[tuple[int, int]]:
    """The lines of both sides."""
    return [
        (f.first.site.line, f.second.site.line) for f in findings if f.first.site and f.second.site
    ]


def test_a_guess_makes_a_possible_race_only() -> None:
    t = Trace()
    side = t.stream("side")
    t.op(side, touched=[guess(0, 64)], line=10, name="smooth")
    t.op(t.default, write=[(0, 64)], line=11)
    found = t.report()
    assert found.races == []
    assert found.verdict == "clean"
    assert lines(found.possible) == [(10, 11)]
    (race,) = found.possible
    assert race.confidence == race.first.confidence == "possible"
    assert race.second.confidence == "certain"
    assert "what smooth does with a pointer among its parameters is not known" in race.missing_edge


def test_a_guess_at_what_the_host_uses_says_so() -> None:
    t = Trace()
    landing = r.Access(r.HOST, 0, 64, (), (), int(r.Mode.WRITE), "self")
    t.op(t.stream("side"), touched=[landing], copy=int(r.CopyKind.DEVICE_TO_HOST))
    used = r.Access(r.HOST, 0, 64, (), (), int(r.Mode.READ), "self", int(r.Confidence.POSSIBLE))
    t.host(touched=[used], name="Tensor.numpy")
    (race,) = t.report().possible
    text = "which of these bytes were used through Tensor.numpy, if any, is not known"
    assert text in race.missing_edge


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("driver::cupy_add", "aten::neg"), "R12-INTEROP"),
        (("aten::neg", "driver::memcpy"), "R12-INTEROP"),
        (("driver::smooth", "driver::sharpen"), "R01-PROD-CONS"),
    ],
)
def test_memory_shared_by_two_libraries(names: tuple[str, str], kind: str) -> None:
    t = Trace()
    t.op(t.stream("side"), write=[(0, 64)], name=names[0])
    t.op(t.default, read=[(0, 64)], name=names[1])
    (race,) = t.report().races
    assert race.kind == kind


def test_an_order_makes_a_guess_harmless() -> None:
    t = Trace()
    side = t.stream("side")
    t.op(side, touched=[guess(0, 64)], line=10)
    t.wait_stream(t.default, side)
    t.op(t.default, write=[(0, 64)], line=11)
    assert t.report().possible == []


def test_a_likely_access_makes_a_race() -> None:
    t = Trace()
    side = t.stream("side")
    likely = r.Access(0, 0, 64, (), (), 2, "output", int(r.Confidence.LIKELY))
    t.op(side, touched=[likely], line=10)
    t.op(t.default, read=[(0, 64)], line=11)
    found = t.report()
    assert found.possible == []
    assert [race.confidence for race in found.races] == ["likely"]


def test_a_guess_stands_for_no_certain_access_of_the_same_line() -> None:
    t = Trace()
    side = t.stream("side")
    t.op(side, update=[(0, 64)], line=10)
    t.op(side, touched=[guess(0, 64)], line=10)
    t.op(t.default, read=[(0, 64)], line=11)
    found = t.report()
    assert [race.confidence for race in found.races] == ["certain"]
    assert found.possible == []


def test_a_guess_about_the_present_block_hides_no_access_to_the_one_before() -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(0, 64, line=1)
    t.op(side, write=[(0, 64)], line=10)
    t.free(block, line=11)
    t.alloc(0, 64, line=12)
    t.op(side, touched=[guess(0, 64)], line=13)
    t.op(t.default, write=[(0, 64)], line=14)
    found = t.report()
    assert lines(found.races) == [(10, 14)]
    assert lines(found.possible) == [(13, 14)]


def test_a_possible_race_does_not_end_a_program_that_fails_fast() -> None:
    t = Trace()
    side = t.stream("side")
    t.op(side, touched=[guess(0, 64)], line=10)
    t.op(t.default, write=[(0, 64)], line=11)
    checker = Checker()
    for record in t.records:
        checker.feed(record)
    assert not checker.has_races
    t.op(side, write=[(0, 64)], line=12)
    checker.feed(t.records[-1])
    assert checker.has_races


def test_latent_races_that_rest_on_a_guess_come_last() -> None:
    t = Trace()
    side = t.stream("side")
    first, second = t.alloc(0, 64, line=1), t.alloc(64, 128, line=2)
    t.op(side, touched=[guess(0, 64)], line=10)
    t.op(side, write=[(64, 128)], line=11)
    t.free(first, line=12)
    t.free(second, line=13)
    assert [f.confidence for f in t.report().latent] == ["certain", "possible"]


def many(pairs: int) -> Report:
    """Kernels of `pairs` lines on each of two streams, all with a pointer to the same block."""
    t = Trace()
    side = t.stream("side")
    t.alloc(0, 64, line=1)
    for line in range(pairs):
        t.op(side, touched=[guess(0, 64)], line=100 + line)
    t.op(t.default, touched=[guess(0, 64)], line=10)
    t.op(t.default, write=[(0, 64)], line=11)
    return t.report()


def test_pairs_of_guesses_are_folded_for_reading() -> None:
    found = many(5)
    assert len(found.possible) == 10
    text = report.render(found, "text", VIEW)
    assert "possible race 6 of 6" in text
    assert "4 more pairs of lines like this one on the same memory" in text
    assert text.index("train.py:11 in main") < text.index("4 more pairs")
    assert "streamsan: 10 possible races" in text
    whole = report.render(found, "text", replace(VIEW, limit=None))
    assert "possible race 10 of 10" in whole
    assert report.render(found, "markdown", VIEW).count("## Possible race") == 6
    assert report.render(found, "github", VIEW).count("::notice ") == 6
    value = json.loads(report.render(found, "json", VIEW))
    assert (value["verdict"], value["races"], len(value["possible"])) == ("clean", [], 10)


@pytest.mark.parametrize(("strict", "status"), [(False, 0), (True, 66)])
def test_exit_status(strict: bool, status: int) -> None:
    assert exit_status(many(1), strict=strict) == status
