"""Checking beside the program: records go to a process of their own, which checks them there.

What is left in the program is to pack its records into bytes, and to send them, a batch at a time.
A program that is faster than its checker waits for it, with the GIL released; nothing grows.
"""

from __future__ import annotations

import _thread
import os
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from streamsan.model.findings import Report
from streamsan.model.records import AnyRecord
from streamsan.record import _core
from streamsan.report import Sources
from streamsan.session._guard import Failures, describe, is_foreign, nothing
from streamsan.session._launch import start_process
from streamsan.session._link import Kind, Link
from streamsan.session._process import Answer
from streamsan.trace import MAX_RAW, count, encode_one, encode_plain

_BATCH = 1024
"""Records sent at a time: at 70 bytes each they fit into the packets that may be under way."""

_INTERVAL = 0.5
"""Seconds after which records are sent though they are no batch yet."""

_PATIENCE = 0.02
"""Seconds to wait for an answer before looking whether a signal's handler has got it meanwhile."""

_TICKET = struct.Struct("<Q")


class BesideChecker:
    """Hands records to a checker in another process; `streamsan.session._local.Checking`.

    Raises as `streamsan.session._launch.start_process`.
    """

    def __init__(self, trace: Path | None = None, *, force: bool = False) -> None:
        self._process = os.getpid()
        self._failures = Failures()
        self._packed = _core.Packed(encode_plain, self._encoded, self._flush, MAX_RAW, _BATCH)
        self._handing_over = False
        self._tickets = 0
        self._answers: dict[int, bytes] = {}
        self._final: bytes | None = None
        self._link: Link | None = start_process(trace, force)
        _links.append(self._link)
        self._closed = _thread.allocate_lock()
        self._closed.acquire()

    def flush_regularly(self, lock: AbstractContextManager[object]) -> None:
        """Send what there is every half second; `lock` is the one held around all calls."""
        _thread.start_new_thread(self._flush_regularly, (lock,))

    def _flush_regularly(self, lock: AbstractContextManager[object]) -> None:
        while not self._closed.acquire(timeout=_INTERVAL):
            with lock:
                self._flush()

    @property
    def sources(self) -> Sources:
        """The program's lines that took part."""
        return {(file, line): text for file, line, text in self._ask().sources}

    @property
    def feed(self) -> Callable[[AnyRecord], None]:
        """Takes the next record of the run; the recorder's compiled core knows what this is."""
        feed: Callable[[AnyRecord], None] = self._packed
        return feed

    def report(self) -> Report:
        """What was found so far, with errors of our own in it."""
        found = self._ask().report
        found.summary.internal_errors += self._failures.texts()
        return found

    def close(self) -> None:
        """End the trace: the run is over."""
        self._final = self._question(Kind.CLOSE)
        self._drop()

    def discard(self) -> None:
        """Remove the trace: nothing could be recorded."""
        if self._link and os.getpid() == self._process:
            with suppress(OSError):
                self._link.send(Kind.DISCARD)
                self._link.receive()  # it goes once the file is gone
        self._drop()

    def _ask(self) -> Answer:
        raw = self._final or self._question(Kind.REPORT)
        return msgspec.msgpack.decode(raw, type=Answer) if raw else Answer(nothing(), [])

    def _question(self, kind: Kind) -> bytes | None:
        """The answer to a question about all records so far; None where there is nobody."""
        self._flush()
        if self._link is None or os.getpid() != self._process:
            return None
        ticket = self._tickets = self._tickets + 1
        try:
            self._link.send(kind, _TICKET.pack(ticket))
            while ticket not in self._answers:
                self._take_answer(self._link)
        except Exception as error:
            self._break(error)
            return None
        return self._answers.pop(ticket)

    def _take_answer(self, link: Link) -> None:
        message = link.receive(_PATIENCE)
        if message is None:
            if link.ended:
                raise ConnectionAbortedError("its process is gone")
            return
        kind, payload = message
        if kind == Kind.FAILED:
            raise ConnectionAbortedError(payload.decode())
        self._answers[_TICKET.unpack_from(payload)[0]] = payload[_TICKET.size :]

    def _flush(self) -> None:
        """Send all records so far. A signal's handler that comes here again changes nothing."""
        packed = self._packed
        if self._link is None or os.getpid() != self._process:
            packed.clear()
            return
        try:
            if len(packed) and not self._handing_over:
                self._handing_over = True
                try:
                    array = packed.whole()
                    self._link.hand_over(array, packed, count(array))
                finally:
                    self._handing_over = False
            self._link.flush()
        except Exception as error:
            self._break(error)

    def _encoded(self, record: AnyRecord) -> bytes:
        """The bytes of a record that is out of the common, none where it cannot be sent."""
        try:
            return encode_one(record)
        except Exception as error:
            if is_foreign(error):
                raise
            self._failures.add("checking", error)
            return b""

    def _break(self, error: Exception) -> None:
        """Give up: the process is gone, or out of reach. What was found is lost with it.

        Raises `error` where it is the program's.
        """
        if is_foreign(error):
            raise error
        if self._link is not None:
            cause = _last_words(self._link) or describe(error)
            self._failures.tell(
                "checking beside the program",
                f"the process that checks is lost, with all that it had found ({cause})",
            )
            self._drop()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            if link in _links:  # not in a forked child
                _links.remove(link)
            link.close()
            self._closed.release()


_links: list[Link] = []
"""Open connections: a forked child closes its copies, which nobody there uses."""


def _close_links() -> None:
    while _links:
        _links.pop().close()


os.register_at_fork(after_in_child=_close_links)


def _last_words(link: Link) -> str:
    """The error of ours that has ended the other process, if it could tell one."""
    with suppress(OSError):
        while message := link.receive(0.0):
            if message[0] == Kind.FAILED:
                return message[1].decode()
    return ""
