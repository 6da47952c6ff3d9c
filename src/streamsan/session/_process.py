"""The process beside a program: checks the records that come from it, and writes its trace.

It ends by itself when the program does, whatever way that ends, and leaves a readable trace.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from streamsan.errors import UsageError
from streamsan.model.findings import Report
from streamsan.session._guard import describe
from streamsan.session._link import Kind, Link
from streamsan.session._local import LocalChecker
from streamsan.trace import decode, decode_each

_AHEAD = 512
"""Most packets of records, 64 KiB each, that wait here to be checked before the program waits."""

_AT_A_TIME = 64
"""Records checked before what has arrived meanwhile is read: the system keeps little of it, and a
program that finds no room there waits.
"""

_GARBAGE = (50_000, 20, 50)
"""When to look for garbage: a checker makes little, and has much to look through (5 % of its time
with what Python has).
"""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Meant for the program, also where they are sent to all processes of a job."""


class Answer(msgspec.Struct):
    """The findings, and the lines (file, line, text) of the program that took part."""

    report: Report
    sources: list[tuple[str, int, str]]


def main(between: int, end: str, program: str, trace: str, force: str) -> None:
    """Serve the program whose process number is `program`, over the socket of number `end`.

    `between` is the process that has forked this one; it ends, and whoever adopts orphans takes
    this one over.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    link = Link(socket.socket(fileno=int(end)), _AHEAD, _watch(int(program)))
    with suppress(OSError):  # the program is gone, and nobody else is there to be told
        try:
            while os.getppid() == between:
                time.sleep(0.001)
            if os.getppid() == int(program):
                link.send(Kind.CHILD, str(os.getpid()).encode())
            else:
                serve(link, Path(trace) if trace else None, bool(force))
        except Exception as error:
            link.send(Kind.FAILED, describe(error).encode("utf-8", "backslashreplace"))


def serve(link: Link, trace: Path | None, force: bool) -> None:
    """Check what comes over `link` until the program says that it is over, or is gone."""
    try:
        checker = LocalChecker(trace, force=force)
    except UsageError as error:
        link.send(Kind.REFUSED, str(error).encode("utf-8", "surrogateescape"))
        return
    try:
        link.send(Kind.READY)
        while (message := link.receive()) is not None and _handle(link, checker, *message):
            pass
    finally:
        checker.close()


def _handle(link: Link, checker: LocalChecker, kind: int, payload: bytes) -> bool:
    """Do what a message asks for; whether more may come."""
    if kind == Kind.RECORDS:
        _take(link, checker, payload)
        return True
    if kind == Kind.DISCARD:
        checker.discard()
        return False
    if kind == Kind.CLOSE:
        checker.close()
    link.send(Kind.ANSWER, payload + _answer(checker))
    return kind != Kind.CLOSE


def _take(link: Link, checker: LocalChecker, raw: bytes) -> None:
    """Check an array of records; where nobody is left to be told, the trace is all that counts."""
    try:
        records = decode(raw)
    except ValueError:
        checker.feed_good(list(decode_each(raw)))
        return
    for start in range(0, len(records), _AT_A_TIME):
        some = records[start : start + _AT_A_TIME]
        if link.ended:
            checker.write(some)
        else:
            checker.feed_all(some)
            link.take_in()


def _answer(checker: LocalChecker) -> bytes:
    lines = [(file, line, text) for (file, line), text in checker.sources.items()]
    return msgspec.msgpack.encode(Answer(checker.report(), lines))


def _watch(program: int) -> int | None:
    """A descriptor that becomes readable when a process ends, where the system has such."""
    try:
        return os.pidfd_open(program)
    except (AttributeError, OSError):
        return None
