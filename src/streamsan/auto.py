"""``import streamsan.auto``: record the rest of this process if ``STREAMSAN`` says so.

With the variable unset or ``0`` the import does nothing. Else the process is recorded from here
on, and its report follows when Python exits; the exit status stays the program's own, except with
``fail_fast``. Under ``streamsan run`` the import does nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace

from streamsan import config
from streamsan.commands._outcome import absolute, check_output, deliver, tell_next
from streamsan.config import Settings
from streamsan.errors import EXIT_RACES, StreamSanError
from streamsan.record import Options
from streamsan.session import Session, active


def _start(settings: Settings) -> None:
    check_output(settings)
    settings = replace(settings, output=absolute(settings.output), trace=absolute(settings.trace))
    options = Options(
        device=settings.device,
        devices=settings.devices,
        schedule=settings.schedule,
        memory=settings.memory,
        arguments=tuple(sys.argv),
    )

    def stop_at_race(session: Session) -> None:
        session.halt()
        sys.stdout.flush()
        _deliver(session, settings)
        os._exit(EXIT_RACES)

    session = Session(
        options,
        trace=settings.trace,
        force=settings.force,
        on_race=stop_at_race if settings.fail_fast else None,
    )
    session.start()
    atexit.register(_finish, session, settings)


def _finish(session: Session, settings: Settings) -> None:
    if active() is not session:  # a forked child, or done
        return
    session.stop()
    _deliver(session, settings)


def _deliver(session: Session, settings: Settings) -> None:
    deliver(
        session.report,
        settings,
        sources=session.sources,
        base=session.base,
        stream=sys.__stderr__ or sys.stderr,
    )
    tell_next(settings, session.base)


def _main() -> None:
    try:
        settings = config.from_environment(os.environ)
        if settings and not active():
            _start(settings)
    except StreamSanError as error:
        print(f"streamsan: {error}", file=sys.stderr)
        sys.exit(error.status)


_main()
