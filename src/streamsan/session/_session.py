"""A session: records this process, checks it while it runs, and writes its trace if asked to.

An error of our own never reaches the program: the first of each part is remembered for the
report's ``internal_errors``, and the program goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import ClassVar

from streamsan import report
from streamsan.allocator import DEFAULT, parse_allocator
from streamsan.errors import EXIT_RACES, UsageError
from streamsan.model.findings import Report
from streamsan.model.records import End
from streamsan.record import Options, Recorder, device_of, open_recorder
from streamsan.session._beside import BesideChecker
from streamsan.session._guard import Failures
from streamsan.session._launch import NoProcessError
from streamsan.session._local import Checking, LocalChecker
from streamsan.session._values import (
    parse_count,
    parse_device,
    parse_driver,
    parse_engine,
    parse_memory,
    parse_schedule,
)


def active() -> Session | None:
    """The session that records this process now; a forked child has none."""
    session = Session.running
    return session if session and session.process == os.getpid() else None


class Session:
    """Records and checks this process from `start` to `stop`; one at a time.

    `trace` names a file to write, `force` lets it be overwritten. `on_race` is called once, from
    inside the operation that completed the first race. `beside` tells whether to check in a process
    beside this one: None, on a real GPU only. With `on_race` that is not possible.
    """

    running: ClassVar[Session | None] = None
    """The session that was started last and not stopped; forked children see it too."""

    def __init__(
        self,
        options: Options,
        *,
        trace: Path | None = None,
        force: bool = False,
        on_race: Callable[[Session], None] | None = None,
        beside: bool | None = None,
    ) -> None:
        self.process = os.getpid()
        self.base = os.getcwd()
        self._options = options
        self._trace = trace
        self._force = force
        self._on_race = on_race
        self._beside = beside
        self._checker: Checking = LocalChecker()
        self._failures = Failures()
        self._recorder: Recorder | None = None
        self._final: Report | None = None
        self._started = time.monotonic()

    @property
    def sources(self) -> report.Sources:
        """The program's lines that took part, as they were when they ran."""
        with self._lock:
            return self._checker.sources

    @property
    def report(self) -> Report:
        """The findings: so far, or of the whole session once it has stopped."""
        if self._final:
            return self._final
        with self._lock:
            found = self._checker.report()
        found.summary.internal_errors += self._failures.texts()
        return found

    def start(self) -> None:
        """Start to record.

        Raises UsageError where the trace cannot be written, torch or the device is no good, or
        another session records this process already.
        """
        if active():
            raise UsageError("this process is being recorded already: stop that session first")
        self._checker = self._open_checker()
        try:
            self._recorder = open_recorder(self._options, self._checker.feed)
        except BaseException:
            self._checker.discard()
            raise
        if isinstance(self._checker, BesideChecker):
            self._checker.flush_regularly(self._recorder.lock)
        Session.running = self

    def stop(self, status: int = 0) -> None:
        """Stop recording; `status` is the program's exit status. A second call does nothing."""
        if os.getpid() != self.process or self._final or not self._recorder:
            return
        with self._failures.kept("ending the recording"):
            self._recorder.stop(status)
        self._close()

    def halt(self) -> None:
        """Stop in the middle of an operation, for a program that ends at its first race.

        The recorder is not asked for what is outstanding: it is the one that called.
        """
        self._checker.feed(End(EXIT_RACES, time.monotonic() - self._started))
        self._close()

    def render(self, form: str = "text", *, limit: int | None = 10) -> str:
        """The report in a format of `streamsan.report.FORMATS`, at most `limit` of each sort.

        Raises UsageError for an unknown format.
        """
        if form not in report.FORMATS:
            names = ", ".join(report.FORMATS)
            raise UsageError(f"there is no report format {form!r}: choose from {names}")
        view = report.View(sources=self.sources, base=self.base, limit=limit)
        return report.render(self.report, form, view)

    @property
    def _lock(self) -> AbstractContextManager[object]:
        """Held around all calls of the checker: the recorder's."""
        return self._recorder.lock if self._recorder else nullcontext()

    def _open_checker(self) -> Checking:
        """Where to check: beside the program, or inside of it."""
        on_race = self._on_race
        if on_race is not None:
            return LocalChecker(self._trace, force=self._force, on_race=partial(on_race, self))
        beside = self._beside
        if beside is None:
            beside = device_of(self._options) == "cuda"
        if beside:
            try:
                return BesideChecker(self._trace, force=self._force)
            except NoProcessError:  # nothing is lost but time
                pass
            except OSError as error:
                self._failures.add("starting a process to check in: checked inside", error)
        return LocalChecker(self._trace, force=self._force)

    def _close(self) -> None:
        """Close the trace and keep the report: the session is over."""
        with self._lock:
            self._checker.close()
            self._final = self.report
        if Session.running is self:
            Session.running = None


def end_program(session: Session) -> None:
    """Print the report on stderr and end the process with 66: ``fail_fast`` of `watch`."""
    session.halt()
    os.write(2, session.render().encode("utf-8", "backslashreplace"))
    os._exit(EXIT_RACES)


@contextmanager
def watch(
    *,
    device: str = "auto",
    devices: int = 1,
    memory: int | str = "16GiB",
    schedule: str = "program",
    allocator: str = DEFAULT,
    engine: str = "",
    driver: str = "auto",
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
    fail_fast: bool = False,
) -> Iterator[Session]:
    """Record and check the block: ``with streamsan.watch() as session: ...; session.report``.

    The options are those of ``streamsan run``. In a program that is being recorded already the
    block joins that session. Raises UsageError for a bad option, and where torch or the device
    is no good.
    """
    if running := active():
        yield running
        return
    options = Options(
        device=parse_device(device),
        devices=parse_count(str(devices)),
        memory=parse_memory(str(memory)),
        schedule=parse_schedule(schedule),
        allocator=parse_allocator(allocator),
        engine=parse_engine(engine),
        driver=parse_driver(driver),
    )
    path = Path(os.path.abspath(trace)) if trace is not None else None
    session = Session(options, trace=path, force=force, on_race=end_program if fail_fast else None)
    session.start()
    try:
        yield session
    except BaseException:
        session.stop(1)
        raise
    session.stop(0)
