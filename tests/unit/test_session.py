"""Sessions inside this process, with a recorder that emits what the test tells it to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import streamsan
from streamsan.errors import UsageError
from streamsan.model.records import AnyRecord
from streamsan.record import Options, Sink, _torch
from streamsan.session import Failures, GuardedChecker, Session, active
from streamsan.trace import read
from tests.unit.launch import Recorder
from tests.unit.samples import racy_run

MODULE = "streamsan.session._session"


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """The recorders that sessions open, in order."""
    opened: list[Recorder] = []

    def open_recorder(options: Options, sink: Sink) -> Recorder:
        opened.append(Recorder(options, sink))
        return opened[-1]

    monkeypatch.setattr(f"{MODULE}.open_recorder", open_recorder)
    monkeypatch.setattr(f"{MODULE}.device_of", lambda _: "virtual")
    return opened


def test_watch(recorders: list[Recorder]) -> None:
    with streamsan.watch(device="virtual", devices=2, memory="1GiB", schedule="late") as session:
        assert active() is session
        assert session.report.verdict == "clean"
        recorders[0].race()
        assert session.report.verdict == "races"
    assert active() is None
    assert recorders[0].options == Options("virtual", 2, "late", memory=1 << 30)
    assert session.report.summary.complete
    assert session.report.summary.exit_status == 0
    assert "race 1 of 1" in session.render()
    assert session.render("github").startswith("::error ")


def test_an_exception_passes_and_the_session_ends(recorders: list[Recorder]) -> None:
    watch = streamsan.watch()
    session = watch.__enter__()
    recorders[0].race()
    error = ZeroDivisionError()
    assert not watch.__exit__(type(error), error, None)
    assert session.report.summary.exit_status == 1
    assert session.report.verdict == "races"
    assert active() is None


def test_a_block_inside_a_session_joins_it(recorders: list[Recorder]) -> None:
    with streamsan.watch() as outer:
        with streamsan.watch() as inner:
            assert inner is outer
        assert active() is outer
    assert len(recorders) == 1


def test_a_second_session_is_refused(recorders: list[Recorder]) -> None:
    with streamsan.watch(), pytest.raises(UsageError, match="recorded already"):
        Session(Options()).start()
    assert len(recorders) == 1


def test_the_trace_gives_the_same_report(recorders: list[Recorder], tmp_path: Path) -> None:
    path = tmp_path / "t"
    with streamsan.watch(trace=path) as session:
        recorders[0].race()
    checker = GuardedChecker()
    for record in read(path):
        checker.feed(record)
    assert checker.report() == session.report
    assert checker.sources == session.sources


def test_no_trace_is_left_where_nothing_can_be_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: Options, __: Sink) -> Recorder:
        raise UsageError("torch is not installed")

    monkeypatch.setattr(f"{MODULE}.open_recorder", refuse)
    with pytest.raises(UsageError, match="torch"), streamsan.watch(trace=tmp_path / "t"):
        pass
    assert not list(tmp_path.iterdir())
    assert active() is None


def test_a_failing_writer_is_reported_and_checking_goes_on(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: object, __: list[AnyRecord]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streamsan.trace.Writer._write_frames", refuse)
    with streamsan.watch(trace=tmp_path / "t") as session:
        recorders[0].race()
    assert session.report.verdict == "races"
    (error,) = session.report.summary.internal_errors
    assert error.startswith("writing the trace: OSError: [Errno 28] No space left on device [")


def test_a_failing_recorder_is_reported(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    with streamsan.watch() as session:
        monkeypatch.setattr(recorders[0], "stop", None)
    (error,) = session.report.summary.internal_errors
    assert error.startswith("ending the recording: TypeError")
    assert not session.report.summary.complete


def test_a_failing_checker_is_reported_once(recorders: list[Recorder]) -> None:
    with streamsan.watch() as session:
        recorders[0].fail()
        recorders[0].race()
        recorders[0].fail()
    assert session.report.verdict == "races"
    (error,) = session.report.summary.internal_errors
    assert error.startswith("checking: ")
    assert error.endswith("(and 1 more)")
    assert session.render().count("failed inside") == 1


def test_a_checker_that_cannot_report(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = GuardedChecker()
    monkeypatch.setattr("streamsan.detect.Checker.report", None)
    found = checker.report()
    assert found.verdict == "clean"
    assert not found.summary.complete
    assert found.summary.internal_errors[0].startswith("reporting: TypeError")


def test_a_race_is_called_out_once(recorders: list[Recorder]) -> None:
    calls: list[Session] = []
    session = Session(Options(), on_race=calls.append)
    session.start()
    recorders[0].race()
    recorders[0].race()
    session.stop()
    assert calls == [session]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # it is: Python 3.12
def test_a_forked_child_is_not_recorded(recorders: list[Recorder]) -> None:
    with streamsan.watch() as session:
        child = os.fork()
        if not child:
            recorders[0].race()
            status = session.report.verdict != "clean" or active() is not None
            os._exit(int(status))
        assert os.waitpid(child, 0)[1] == 0
    assert session.report.verdict == "clean"


@pytest.mark.parametrize(
    ("option", "value"),
    [("device", "gpu"), ("devices", 0), ("memory", "1"), ("schedule", "fast")],
)
def test_bad_options(recorders: list[Recorder], option: str, value: object) -> None:
    with pytest.raises(UsageError), streamsan.watch(**{option: value}):  # type: ignore[arg-type]
        pass
    assert not recorders


def test_an_unknown_format(recorders: list[Recorder]) -> None:
    with streamsan.watch() as session:
        pass
    assert len(recorders) == 1
    with pytest.raises(UsageError, match="choose from text"):
        session.render("xml")


def test_failures_count_what_follows_the_first() -> None:
    failures = Failures()
    for number in range(3):
        with failures.kept("part"):
            raise ValueError(number)
    (text,) = failures.texts()
    assert text.startswith("part: ValueError: 0 [test_session.py:")
    assert text.endswith(" (and 2 more)")


def test_a_process_stays_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the virtual GPU makes torch say that there is a real one."""
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    assert _torch.choose("auto", torch) == "cuda"
    monkeypatch.setattr(_torch, "_installed", SimpleNamespace(name="cuda"))
    assert _torch.choose("auto", torch) == _torch.choose("cuda", torch) == "cuda"
    monkeypatch.setattr(_torch, "_installed", SimpleNamespace(name="virtual"))
    assert _torch.choose("auto", torch) == "virtual"
    with pytest.raises(UsageError, match="use --device virtual"):
        _torch.choose("cuda", torch)


def test_the_records_of_a_run_are_racy() -> None:
    checker = GuardedChecker()
    for record in racy_run():
        checker.feed(record)
    assert checker.has_race()


def test_importing_the_package_imports_no_framework() -> None:
    code = (
        "import sys, streamsan; assert streamsan.__version__; assert callable(streamsan.watch); "
        "assert callable(streamsan.Session); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "False\n"


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'wach'"):
        streamsan.wach  # noqa: B018
