"""``import streamsan.auto``: record the rest of this process if ``STREAMSAN`` says so.

With the variable unset or ``0`` the import does nothing. Else the process is recorded from here
on, and its report follows when Python exits. Races leave the exit status alone, except with
``fail_fast``, and with ``strict``, which exits as ``streamsan run --strict`` does. Under
``streamsan run`` the import does nothing.

An exit handler cannot see the status of the program, only whether an exception ended it. So with
``strict`` the status 66 replaces one of ``sys.exit``. It ends the process in the handler, before
handlers that were registered before the import.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace

from streamsan import config
from streamsan.autograd import Plans
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
from streamsan.config import Settings
from streamsan.errors import EXIT_RACES, StreamSanError
from streamsan.record import Options
from streamsan.session import Session, active


def _start(settings: Settings) -> None:
    program = getattr(sys.modules["__main__"], "__file__", None)
    check_output(settings, [program] if program else [])
    settings = replace(
        settings,
        output=absolute(settings.output),
        trace=absolute(settings.trace),
        plan=absolute(settings.plan),
    )
    plans = collect_plans(settings)
    options = Options(
        device=settings.device,
        devices=settings.devices,
        schedule=settings.schedule,
        allocator=settings.allocator,
        engine=settings.engine,
        driver=settings.driver,
        memory=settings.memory,
        arguments=tuple(sys.argv),
    )

    def stop_at_race(session: Session) -> None:
        session.halt()
        flush_standard_streams()
        _deliver(session, settings, plans)
        os._exit(EXIT_RACES)

    session = Session(
        options,
        trace=settings.trace,
        force=settings.force,
        on_race=stop_at_race if settings.fail_fast else None,
    )
    session.start()
    atexit.register(_finish, session, settings, plans)


def _finish(session: Session, settings: Settings, plans: Plans | None) -> None:
    if active() is not session:  # a forked child, or done
        return
    session.stop()
    written = _deliver(session, settings, plans)
    if not settings.strict or hasattr(sys, "last_type"):  # an exception has ended the program
        return
    if status := exit_status(session.report, strict=True, written=written):
        flush_standard_streams()
        os._exit(status)


def _deliver(session: Session, settings: Settings, plans: Plans | None) -> bool:
    """Report; returns whether that could be written."""
    stream = sys.__stderr__ or sys.stderr
    written = deliver(
        session.report,
        settings,
        sources=session.sources,
        base=session.base,
        stream=stream,
    )
    tell_plans(plans, settings, stream)
    tell_next(settings, session.base)
    return written


def _main() -> None:
    try:
        settings = config.from_environment(os.environ)
        if settings and not active():
            _start(settings)
    except StreamSanError as error:
        print(f"streamsan: {error}", file=sys.stderr)
        sys.exit(error.status)


_main()
