"""How a program ends: what Python prints and which status it exits with, without our frames."""

from __future__ import annotations

import sys

from streamsan.record import remove_our_frames


def system_exit_status(error: SystemExit) -> int:
    """The status that `error` asks for; as by Python, a code that is no number is printed."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def report_exception(error: BaseException) -> int:
    """Hand an uncaught exception to ``sys.excepthook``, as Python does; returns the status."""
    remove_our_frames(error)
    sys.last_type, sys.last_value = type(error), error
    sys.last_traceback = error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as exit_:
        return system_exit_status(exit_)
    except BaseException as failure:
        remove_our_frames(failure)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1
