"""A checker in a process beside the program: one report, and a program that does not notice."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

import streamsan
from streamsan.errors import TraceError, UsageError
from streamsan.model.records import AnyRecord, End, Note, SiteDef
from streamsan.record import Options, Sink
from streamsan.session import GuardedChecker, Session
from streamsan.session._beside import BesideChecker
from streamsan.session._link import Kind
from streamsan.trace import read
from tests.unit.launch import Recorder
from tests.unit.samples import racy_records, racy_run
from tests.unit.test_commands import ROOT

MODULE = "streamsan.session._session"


@pytest.fixture
def checker() -> Iterator[BesideChecker]:
    """A checker in a process of its own."""
    made = BesideChecker()
    yield made
    made.discard()


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """The recorders that sessions open, in order, as on a machine with a GPU."""
    opened: list[Recorder] = []

    def open_recorder(options: Options, sink: Sink) -> Recorder:
        opened.append(Recorder(options, sink))
        return opened[-1]

    monkeypatch.setattr(f"{MODULE}.open_recorder", open_recorder)
    monkeypatch.setattr(f"{MODULE}.device_of", lambda _: "cuda")
    return opened


def beside() -> list[int]:
    """The numbers of all processes that check for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it is gone
            continue
        if (
            any("streamsan.session._process" in word for word in words)
            and str(os.getpid()) in words
        ):
            found.append(int(folder.name))
    return found


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is checked as on a machine with a GPU."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def until(path: Path) -> list[AnyRecord]:
    """The records of a trace up to where it is good."""
    records: list[AnyRecord] = []
    with suppress(TraceError):
        records.extend(read(path))
    return records


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
    "LAUNCH_DEVICE": "cuda",
}
"""Of programs that are checked as on a machine with a GPU."""

RUN = racy_run("<string>")
"""What a recorder of these tests records of a program that does something racy."""


def feed(checker: BesideChecker, records: list[AnyRecord]) -> None:
    """Hand records over."""
    for record in records:
        checker.feed(record)


def inside(records: list[AnyRecord]) -> GuardedChecker:
    """A checker in this process that has had `records`."""
    checker = GuardedChecker()
    for record in records:
        checker.feed(record)
    return checker


# One report


def test_the_report_in_the_middle_and_at_the_end(checker: BesideChecker) -> None:
    records = racy_run()
    for count, record in enumerate(records, 1):
        checker.feed(record)
        assert checker.report() == inside(records[:count]).report()
    checker.close()
    assert checker.report() == checker.report() == inside(records).report()
    assert checker.sources == inside(records).sources


def test_many_records(checker: BesideChecker) -> None:
    """Many times more than the connection holds."""
    notes: list[AnyRecord] = [Note("info", "x" * 1000)] * 20_000
    feed(checker, [*notes, *racy_run()])
    checker.close()
    assert checker.report() == inside([*notes, *racy_run()]).report()


def test_a_large_record_and_a_large_answer(checker: BesideChecker) -> None:
    lines: list[AnyRecord] = [
        SiteDef(10 + number, "train.py", number, "f", True, "y" * 2000, "")
        for number in range(2000)
    ]
    feed(checker, [*racy_run(), *lines])
    assert checker.sources == inside([*racy_run(), *lines]).sources
    assert checker.report() == inside(racy_run()).report()


def test_a_record_that_is_none_is_told_and_nothing_else_is_lost(checker: BesideChecker) -> None:
    wrong = Note("info", 3)  # type: ignore[arg-type]
    never = Note("info", object())  # type: ignore[arg-type]
    feed(checker, [*racy_records(), wrong, never, None, End(0, 0.5)])  # type: ignore[list-item]
    found = checker.report()
    expected = inside(racy_run()).report()
    errors = found.summary.internal_errors
    found.summary.internal_errors = []
    assert found == expected
    assert len(errors) == 2
    assert "a record holds a object" in errors[1]
    assert errors[0].startswith("checking: ")
    assert errors[0].endswith("(and 1 more)")


def test_names_that_are_no_text(checker: BesideChecker) -> None:
    feed(checker, racy_run("/srv/t\udce9.py"))
    (race,) = checker.report().races
    assert race.first.site
    assert race.first.site.file == "/srv/t\\udce9.py"


# A session


def test_several_sessions(recorders: list[Recorder]) -> None:
    for _ in range(2):
        with streamsan.watch() as session:
            assert session.report.verdict == "clean"
            recorders[-1].race()
            assert session.report.verdict == "races"
            assert len(beside()) == 1
        assert session.report == inside(RUN).report()
        assert "race 1 of 1" in session.render()
        assert "loss = weight * batch" in session.render()
    await_no_process()


def await_no_process() -> None:
    deadline = time.monotonic() + 30
    while beside() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not beside()


def test_the_trace(recorders: list[Recorder], tmp_path: Path) -> None:
    path = tmp_path / "t"
    with streamsan.watch(trace=path):
        with pytest.raises(UsageError, match="is being written by another run"):
            BesideChecker(path, force=True)
        recorders[0].race()
    assert list(read(path)) == RUN
    with pytest.raises(UsageError, match=r"t exists already.*--force"), streamsan.watch(trace=path):
        pass
    with streamsan.watch(trace=path, force=True):
        pass
    assert len(list(read(path))) == 2
    with pytest.raises(UsageError, match="cannot be written"):
        BesideChecker(tmp_path / "missing" / "t")


def test_no_trace_is_left_where_nothing_can_be_recorded(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: Options, __: Sink) -> Recorder:
        raise UsageError("no GPU")

    monkeypatch.setattr(f"{MODULE}.open_recorder", refuse)
    with pytest.raises(UsageError, match="no GPU"), streamsan.watch(trace=tmp_path / "t"):
        pass
    assert not list(tmp_path.iterdir())
    assert not recorders


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    limit = tmp_path / "t"
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "import streamsan\nfrom tests.unit import launch\nlaunch.stand_in()\n"
        f"with streamsan.watch(trace={str(limit)!r}) as session: launch.recorder.race()\n"
        "print(session.report.verdict, *session.report.summary.internal_errors)\n"
    )
    done = python(code)
    assert done.stdout.startswith("races writing the trace: OSError: [Errno 27] File too large")


def test_the_first_race_ends_the_program_from_inside(recorders: list[Recorder]) -> None:
    calls: list[Session] = []
    session = Session(Options(), on_race=calls.append)
    session.start()
    recorders[0].race()
    assert calls == [session]
    assert not beside()
    session.stop()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # it is: Python 3.12
def test_a_forked_child_is_not_recorded_and_holds_nothing(
    recorders: list[Recorder], tmp_path: Path
) -> None:
    ready, go = os.pipe()
    with streamsan.watch(trace=tmp_path / "t") as session:
        child = os.fork()
        if not child:
            recorders[0].race()
            os.read(ready, 1)
            os._exit(int(session.report.verdict != "clean"))
        assert session.report.verdict == "clean"
    await_no_process()
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert list(read(tmp_path / "t")) == [RUN[0], RUN[-1]]


def test_reports_from_the_handler_of_a_signal(recorders: list[Recorder]) -> None:
    verdicts: list[str] = []
    with streamsan.watch() as session:
        recorders[0].race()
        handler = signal.signal(signal.SIGALRM, lambda *_: verdicts.append(session.report.verdict))
        try:
            for number in range(1, 400):
                signal.setitimer(signal.ITIMER_REAL, number * 1e-5)  # once, sooner or later
                recorders[0].race()
                assert session.report.verdict == "races"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
    assert set(verdicts) == {"races"}
    assert session.report.summary.operations == 800


def test_exceptions_from_the_handler_of_a_signal(tmp_path: Path) -> None:
    """Wherever it is interrupted, no batch is lost or comes twice."""

    class InterruptError(Exception):
        pass

    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame and frame.f_code.co_filename.startswith(str(ROOT / "src")):
            raise InterruptError

    path = tmp_path / "t"
    traced = BesideChecker(path)
    packed, count = traced._packed, 400 * 1024
    interrupted = number = 0
    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0007)
    try:
        while number < count:
            for _ in range(1023):  # then none is full, and C code alone is at work
                packed(Note("info", str(number)))
                number += 1
            with suppress(InterruptError):
                interrupted += 1
                traced._flush()
                interrupted -= 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    traced.close()
    assert interrupted
    assert traced.report().summary.internal_errors == []
    assert [int(record.text) for record in until(path) if isinstance(record, Note)] == [
        *range(number)
    ]


# The end of either


def test_a_checker_that_is_killed_is_told(recorders: list[Recorder]) -> None:
    with streamsan.watch() as session:
        recorders[0].race()
        assert session.report.verdict == "races"
        for process in beside():
            os.kill(process, signal.SIGKILL)
        for _ in range(1000):
            recorders[0].race()
    (error,) = session.report.summary.internal_errors
    assert error.startswith("checking beside the program: the process that checks is lost, ")
    assert not session.report.summary.complete
    assert session.sources == {}


def test_an_error_that_ends_the_checker_is_told(checker: BesideChecker) -> None:
    assert checker._link
    checker._link.send(Kind.DISCARD)
    feed(checker, RUN)
    checker.close()
    (error,) = checker.report().summary.internal_errors
    assert "its process is gone" in error or "Broken pipe" in error or "reset" in error


def test_signals_to_all_processes_of_a_job_do_not_end_it(checker: BesideChecker) -> None:
    (process,) = beside()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process, number)
    feed(checker, RUN)
    assert checker.report().verdict == "races"
    assert os.getsid(process) == process != os.getsid(0)
    assert os.readlink(f"/proc/{process}/cwd") == "/"


KILLED = """
import os, signal, sys, time
from tests.unit import launch
launch.stand_in()
import streamsan
watch = streamsan.watch(trace=sys.argv[1])
session = watch.__enter__()
if sys.argv[2] == "heirs":  # a child that Python knows nothing of
    import ctypes
    if not ctypes.CDLL(None).fork():
        time.sleep(60)
        os._exit(0)
for _ in range(int(sys.argv[3])):
    launch.recorder.race()
time.sleep(float(sys.argv[4]))
print(session._checker._link is not None, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("heirs", "races", "seconds"), [("", 1, 2.0), ("", 50_000, 0.0), ("heirs", 1, 2.0)]
)
def test_a_killed_program_leaves_a_trace(
    tmp_path: Path, heirs: str, races: int, seconds: float
) -> None:
    path = tmp_path / "t"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), heirs, str(races), str(seconds)],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    await_unlocked(path)
    records = until(path)
    whole = [RUN[0], *(RUN[1:-1] * races)]
    assert records == whole[: len(records)]
    assert len(records) > len(whole) - 1024
    if seconds:
        assert records == whole


def await_unlocked(path: Path) -> None:
    """Wait until nobody writes a trace."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with path.open("ab") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.05)
            else:
                return


# What the program can tell

UNDISTURBED = """
import os, signal, sys
from tests.unit import launch
launch.stand_in()
import streamsan
with streamsan.watch() as session:
    launch.recorder.race()
    {code}
print(len(session.report.races), session.report.summary.internal_errors)
"""

PROGRAMS = {
    "waits for any child": "try: os.wait()\n    except ChildProcessError as e: print(e.errno)",
    "opens a file": "print(os.open('/dev/null', 0))",
    "limits its files": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))",
    "changes its directory": "os.chdir('/'); os.environ.clear()",
    "takes signals back": "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
    "ignores its children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "starts a program": "import subprocess\n"
    "    print(subprocess.run(['ls', '/proc/self/fd'], capture_output=True).stdout.split())",
    "has a session of its own": "os.fork() or os._exit(0); os.wait()",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_undisturbed(name: str) -> None:
    code = UNDISTURBED.format(code=PROGRAMS[name])
    done = python(code)
    bare = python(
        code.replace(
            "launch.stand_in()", "os.environ['LAUNCH_DEVICE'] = 'virtual'; launch.stand_in()"
        )
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, bare.stdout, "")
    assert done.stdout.endswith("1 []\n")


def test_a_program_that_closes_all_files_goes_on() -> None:
    code = (
        "os.closerange(3, 4096); import socket; pair = socket.socketpair()\n"
        "    for _ in range(5000): launch.recorder.race()\n"
        "    pair[1].setblocking(False)\n"
        "    try: print(pair[1].recv(1))\n"
        "    except BlockingIOError: print('nothing')"
    )
    done = python(UNDISTURBED.format(code=code))
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "nothing"
    assert "the program has closed the connection" in second


ADOPTS = """
import ctypes, os
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
"""


def test_a_program_that_adopts_orphans_checks_inside() -> None:
    code = ADOPTS + UNDISTURBED.format(
        code="print(type(session._checker).__name__)\n    " + PROGRAMS["waits for any child"]
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("LocalChecker")
    assert done.stdout.endswith("10\n1 []\n")  # ECHILD


@pytest.mark.parametrize("executable", ["", "/usr/bin/app", "/missing/python"])
def test_a_program_that_no_python_can_be_started_for_checks_inside(executable: str) -> None:
    done = python(f"import sys; sys.executable = {executable!r}\n" + UNDISTURBED.format(code=""))
    assert done.returncode == 0
    assert done.stdout.startswith("1 [")
    assert ("No such file" in done.stdout) == (executable == "/missing/python")
