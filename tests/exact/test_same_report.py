"""Live, beside, from its trace, and in pieces, a program has the same report, to the byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Thread
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from streamsan.detect import Checker
from streamsan.model import records as r
from streamsan.model.findings import Report
from streamsan.session._beside import BesideChecker
from streamsan.session._link import Kind, Link, connect
from streamsan.session._process import serve
from streamsan.trace import Writer, read
from tests.exact.driven import driven
from tests.exact.examples import examples
from tests.exact.programs import ARENAS, LOOSE, PROGRAMS, Action, Program, Setup
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


def beside(records: list[r.AnyRecord]) -> Report:
    """What a checker says that gets the records over a connection, here from another thread."""
    end, other = connect()
    link, served = Link(end), Link(other)
    thread = Thread(target=serve, args=(served, None, False))
    thread.start()
    assert link.receive() == (Kind.READY, b"")
    with patch("streamsan.session._beside.start_process", return_value=link):
        checker = BesideChecker()
    for nth, record in enumerate(records):
        checker.feed(record)
        if nth == len(records) // 2:
            checker.report()
    checker.close()
    thread.join()
    served.close()
    return checker.report()


@examples(150)
@given(LOOSE, ARENAS, st.booleans(), st.integers(2, 4))
def test_a_program_has_one_report(drawn: Drawn, arena: str, guesses: bool, shares: int) -> None:
    program = Program(*drawn, arena=arena, guesses=guesses)
    _compare([*program.records, r.End(0, 1.0)], shares)


@examples(100)
@given(PROGRAMS, ARENAS, st.integers(0, 30), st.integers(2, 4))
def test_a_program_on_the_virtual_gpu_has_one_report(
    drawn: Drawn, allocator: str, seed: int, shares: int
) -> None:
    trace = driven(*drawn, f"random:{seed}", allocator)
    _compare([*trace.records, r.End(0, 1.0)], shares)


def _compare(records: list[r.AnyRecord], shares: int) -> None:
    live = Checker()
    for record in records:
        live.feed(record)
        live.report()  # asking in the middle changes nothing
    told = as_json(live.report())
    assert as_json(beside(records)) == told
    kept = through_a_file(records)
    assert kept == records
    assert as_json(whole(kept)) == told
    pieces = in_pieces(kept, shares)
    assert pieces is None or as_json(pieces) == told
