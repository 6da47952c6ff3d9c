"""Live, from its trace, and in pieces, a program has the same report, to the byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.trace import Writer, read
from tests.exact.driven import DrivenTrace
from tests.exact.examples import examples
from tests.exact.programs import ARENAS, GRAPHS, PROGRAMS, Action, Program, Setup
from tests.hard.test_pieces import as_json, in_pieces, whole

Drawn = tuple[Setup, list[Action]]


def through_a_file(records: list[r.AnyRecord]) -> list[r.AnyRecord]:
    """The records of a run as a trace holds them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.streamsan"
        writer = Writer(path)
        for record in records:
            writer.write(record)
        writer.close()
        return list(read(path))


@examples(150)
@given(GRAPHS, ARENAS, st.integers(2, 4))
def test_a_program_has_one_report(drawn: Drawn, arena: str, shares: int) -> None:
    _compare([*Program(*drawn, arena=arena).records, r.End(0, 1.0)], shares)


@examples(100)
@given(PROGRAMS, st.integers(0, 30), st.integers(2, 4))
def test_a_program_on_the_virtual_gpu_has_one_report(drawn: Drawn, seed: int, shares: int) -> None:
    trace = DrivenTrace(f"random:{seed}")
    Program(*drawn, trace=trace)
    trace.finish()
    _compare([*trace.records, r.End(0, 1.0)], shares)


def _compare(records: list[r.AnyRecord], shares: int) -> None:
    live = Checker()
    for record in records:
        live.feed(record)
        live.report()  # asking in the middle changes nothing
    told = as_json(live.report())
    kept = through_a_file(records)
    assert kept == records
    assert as_json(whole(kept)) == told
    pieces = in_pieces(kept, shares)
    assert pieces is None or as_json(pieces) == told
