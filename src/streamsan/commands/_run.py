"""``streamsan run``: a program under observation, from its first line to its last exit handler."""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from streamsan import config
from streamsan.autograd import Plans
from streamsan.commands._failure import report_exception, system_exit_status
from streamsan.commands._outcome import (
    absolute,
    check_output,
    collect_plans,
    deliver,
    exit_status,
    flush_standard_streams,
    tell_next,
    tell_plans,
)
from streamsan.commands._program import NoModuleError, Program, find_program
from streamsan.config import Settings
from streamsan.errors import EXIT_RACES
from streamsan.record import Options
from streamsan.session import Session

_TERMINATED = 128 + signal.SIGTERM
"""The status of a program that was terminated, as a shell gives it."""


class RunCommand:
    """Run a program and report its races."""

    verb = "run"
    summary = "run a program and report its stream races"
    synopsis = "[options] SCRIPT | -m MODULE | -c CODE [arguments of the program]"
    examples = (
        ("streamsan run train.py --epochs 1", "on the GPU if there is one, else on a virtual one"),
        ("streamsan run --device virtual train.py", "without a GPU"),
        ("streamsan run --schedule late train.py", "show what a race does when work runs late"),
        ("streamsan run --format json -o races.json train.py", "for another program"),
        ("streamsan run --trace train.streamsan train.py", "keep the run, to check it elsewhere"),
        ("streamsan run --device virtual -m package.train", "a module; -c runs a line of code"),
    )
    details = (
        "All after the script, module or code belongs to the program. It sees its own arguments\n"
        "and ends with its own status, but for 66: it ended well and there were races. The report\n"
        'goes to stderr, or to --output. STREAMSAN="device=virtual,..." sets the same options;\n'
        "those on the command line win.\n"
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the options."""
        config.add_options(parser, config.RECORDING, "where and how to run")
        files = ("trace", "plan", "fail_fast")
        config.add_options(parser, (*files, *config.REPORTING), "what to report")

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Part the options from the program, which starts at the first word that is neither."""
        valued = {flag for option in config.OPTIONS if option.parse for flag in option.flags}
        start = 0
        while start < len(words) and _is_option(words[start]):
            start += 2 if words[start] in valued else 1
        own, program = words[:start], words[start:]
        return own, program[1:] if program[:1] == ["--"] else program

    def run(self, given: argparse.Namespace) -> int:
        """Run the program. The report follows when Python exits, after the program's handlers."""
        settings = config.merge(os.environ, given)
        program = find_program(given.program)
        check_output(settings, program.inputs)
        settings = replace(
            settings,
            output=absolute(settings.output),
            trace=absolute(settings.trace),
            plan=absolute(settings.plan),
        )
        try:
            program.prepare()
        except (SyntaxError, ValueError) as error:  # the program's error, not ours
            return report_exception(error)
        run = _Run(settings, program, tuple(given.program))
        run.start()
        return run.execute()


def _is_option(word: str) -> bool:
    return word.startswith("-") and word not in ("-", "--") and word[:2] not in ("-m", "-c")


class _Run:
    """A program under observation in this process."""

    def __init__(self, settings: Settings, program: Program, words: tuple[str, ...]) -> None:
        self._settings = settings
        self._program = program
        self._status = 0
        self._interrupted = False
        self._finished = False
        self._exit = os._exit
        self._plans: Plans | None = None
        options = Options(
            device=settings.device,
            devices=settings.devices,
            schedule=settings.schedule,
            allocator=settings.allocator,
            engine=settings.engine,
            driver=settings.driver,
            memory=settings.memory,
            user_files=program.files,
            arguments=words,
        )
        self._session = Session(
            options,
            trace=settings.trace,
            force=settings.force,
            on_race=self._stop_at_race if settings.fail_fast else None,
        )

    def start(self) -> None:
        """Start to record, and see to it that every orderly end of the program leads to a report.

        Exit handlers run in reverse: registered first, ours comes after all the program's. Raises
        as `Session.start`.
        """
        atexit.register(self._at_exit)
        self._finished = True
        self._plans = collect_plans(self._settings)
        self._session.start()
        self._finished = False
        os._exit = self._exit_at_once  # type: ignore[assignment]
        self._report_if_terminated()
        for name in ("execv", "execve"):  # what all others of the family call
            setattr(os, name, self._reporting(getattr(os, name)))

    def execute(self) -> int:
        """Run the program and return its status; what it raises is told as Python would."""
        raised: BaseException | None = None
        try:
            self._program.run()
        except NoModuleError:
            self._finished = True
            self._session.stop()
            raise
        except BaseException as error:
            raised = error
        if isinstance(raised, SystemExit):
            self._status = system_exit_status(raised)
        elif raised:  # told outside the handler: what a hook raises has no context then
            self._interrupted = isinstance(raised, KeyboardInterrupt)
            self._status = report_exception(raised)
        return self._status

    def _at_exit(self) -> None:
        """The last exit handler. To change the status there is no other way than ending here."""
        if self._is_over():
            return
        status = self._finish(self._status)
        if self._interrupted:  # Python dies of the signal, so that a shell loop stops too
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            flush_standard_streams()
            os.kill(os.getpid(), signal.SIGINT)
        if status != self._status or _has_daemons():
            flush_standard_streams()
            self._exit(status)

    def _exit_at_once(self, status: int) -> None:
        """``os._exit`` for the program: it skips exit handlers, but not the report."""
        self._exit(status if self._is_over() else self._finish(status))

    def _report_if_terminated(self) -> None:
        """Where one process of several ends with a status such as 66, torchrun terminates the
        others: they report before they end, too.
        """
        main = threading.current_thread() is threading.main_thread()
        free = main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if free and "TORCHELASTIC_RUN_ID" in os.environ:
            signal.signal(signal.SIGTERM, self._terminated)
            default = partial(signal.signal, signal.SIGTERM, signal.SIG_DFL)
            os.register_at_fork(after_in_child=default)

    def _terminated(self, *_: Any) -> None:
        if self._finished:  # the report is being written, and the end is near
            return
        self._finish(_TERMINATED)
        flush_standard_streams()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _reporting(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """``os.execv`` or ``os.execve``, which put another program in this one's place."""

        @wraps(execute)
        def call(path: Any, *arguments: Any) -> Any:
            if not self._is_over() and os.access(path, os.X_OK):
                self._finish(0)
            return execute(path, *arguments)

        return call

    def _stop_at_race(self, session: Session) -> None:
        session.halt()
        flush_standard_streams()
        self._finish(EXIT_RACES)
        self._exit(EXIT_RACES)

    def _is_over(self) -> bool:
        """Whether there is nothing to report: it was done, or this is a forked child."""
        return self._finished or os.getpid() != self._session.process

    def _finish(self, status: int) -> int:
        """Report, and return the status to exit with after the program's own `status`."""
        self._finished = True
        self._session.stop(status)
        found = self._session.report
        base = self._session.base
        stream = sys.__stderr__ or sys.stderr
        written = deliver(
            found, self._settings, sources=self._session.sources, base=base, stream=stream
        )
        tell_plans(self._plans, self._settings, stream)
        tell_next(self._settings, base)
        return exit_status(found, strict=self._settings.strict, program=status, written=written)


def _has_daemons() -> bool:
    """Whether daemon threads are at work.

    Python ends them wherever they are next to run, and where that is inside of an operator, below
    frames of C++ that allow no such end, the process aborts.
    """
    main = threading.main_thread()
    return any(
        thread is not main and thread.daemon and not isinstance(thread, threading._DummyThread)
        for thread in threading.enumerate()
    )
