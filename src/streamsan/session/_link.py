"""A connection between a program and the process that checks it: numbered packets, whole messages.

The program's side may be interrupted by a signal whose handler raises, or calls it again. Handlers
run after calls, so what has to happen together is written without any. The socket keeps packets
whole (``SOCK_SEQPACKET``), and nothing blocks in sending or receiving, only in between, in
`select.poll`. Each packet has a number: who was interrupted right after sending one sends it again,
and the other side drops what it has had. One that arrives is in its place before the call returns.

A packet is a header (`_HEAD`: kind, flags `_FIRST` and `_MORE`, number, length) and up to `_PACKET`
bytes.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import socket
import struct
import sys
import time
from collections import deque
from enum import IntEnum
from typing import Protocol

_HEAD = struct.Struct("<BBQI")
_FIRST, _MORE = 1, 2
"""Flags of a packet: its message begins with it; its message goes on after it."""

_PACKET = 1 << 16
_BUFFER = 4 << 20
"""Bytes to ask of the system for packets under way; it gives what its limit allows."""


class Kind(IntEnum):
    """What a message says, and what its payload is; none is 0, which stands for no packet."""

    RECORDS = 1
    """From here on, the program: an array of records, as `streamsan.trace.encode` makes it."""
    REPORT = 2
    """Answer with what was found so far; the payload comes back in front of the answer."""
    CLOSE = 3
    """The same, but end the trace first, and after it the process."""
    DISCARD = 4
    """Remove the trace, and end: nothing could be recorded."""
    READY = 5
    """From here on, the process beside: it has started."""
    REFUSED = 6
    """The trace cannot be written: the sentence for the user."""
    CHILD = 7
    """It is the program's child after all, and ends: its number."""
    FAILED = 8
    """An error of ours ended it: its text."""
    ANSWER = 9
    """What the question brought, and the findings."""


class Taken(Protocol):
    """Records of which the first can be removed, without a call of Python code."""

    def __delitem__(self, first: slice, /) -> None: ...


Message = tuple[int, bytes]
Part = tuple[int, int, bytes]
"""What a packet carries: kind, flags, bytes."""


class Link:
    """One end of a connection. Not for several threads at a time.

    `ahead` is how many packets are read before anybody asks for them; `peer`, a descriptor that
    becomes readable when the other side's process is gone (a forked child of it may live on and
    hold the connection).
    """

    def __init__(
        self, end: socket.socket, ahead: int = sys.maxsize, peer: int | None = None
    ) -> None:
        """Take `end` over."""
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self._end = end
        self._identity = _identity(end.fileno())
        self._ahead = ahead
        self._peer = peer
        self._sent = 0
        self._out: list[Part] = []
        self._slot: bytearray | None = None
        self._in: deque[bytearray] = deque()
        self._next = 0
        self._parts: list[bytearray] = []
        self._gone = False
        self.ended = False
        """Whether nothing more comes from the other side but what has been read."""

    def hand_over(self, array: bytes, taken: Taken, count: int) -> None:
        """Have an `array` of records, and remove from `taken` the first `count`, which it holds:
        both, or neither.
        """
        parts = _parts(Kind.RECORDS, array)
        # No call from here on: handlers of signals, which may raise, run after calls.
        self._out += parts
        del taken[:count]

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a message and all before it. Raises OSError once the connection is gone."""
        self._out += _parts(kind, payload)
        self.flush()

    def flush(self) -> None:
        """Send all that was handed over; waits while the other side is behind. Raises OSError."""
        out = self._out
        while out:
            part = out[0]
            kind, flags, payload = part
            packet = _HEAD.pack(kind, flags, self._sent, len(payload)) + payload
            self._check()
            try:
                self._end.send(packet, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._wait(select.POLLOUT, None)
                self._read()
            else:
                if out and out[0] is part:  # else a signal's handler has sent it meanwhile
                    del out[0]
                    self._sent += 1

    def receive(self, seconds: float | None = None) -> Message | None:
        """The next message; None if none comes within so many seconds, or if the other side is
        gone: then it has `ended`. Raises OSError.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self._check()
            self._read()
            message = self._assemble()
            if message is not None or self.ended:
                return message
            if deadline is not None and time.monotonic() >= deadline:
                return None
            self._wait(0, deadline)

    def take_in(self) -> None:
        """Read what has arrived, so that the other side need not wait while it is worked on.

        Raises OSError.
        """
        self._check()
        self._read()

    def _assemble(self) -> Message | None:
        """The next message, if all of it is there."""
        while self._in:
            packet = self._in[0]
            kind, flags, number, length = _HEAD.unpack_from(packet)
            if not self._in or self._in[0] is not packet:  # a signal's handler has taken it
                continue
            del self._in[0]
            if number < self._next:
                continue
            self._next = number + 1
            if flags & _FIRST:
                self._parts = []
            self._parts += [packet[_HEAD.size : _HEAD.size + length]]
            if not flags & _MORE:
                return kind, b"".join(self._parts)
        return None

    def _read(self) -> None:
        """Take in what has arrived, up to `ahead` packets."""
        while not self.ended and self._has_room():
            slot = self._slot
            if slot is None:
                slot = self._slot = bytearray(_HEAD.size + _PACKET)
            if not slot[0]:
                try:
                    self.ended = not self._end.recv_into(slot)
                except BlockingIOError:
                    self.ended = self._gone
                    return
                except ConnectionResetError:
                    self.ended = True
            if slot[0] and self._slot is slot:  # else a signal's handler has moved it
                self._in += [slot]
                self._slot = None

    def _has_room(self) -> bool:
        return len(self._in) < self._ahead

    def _wait(self, events: int, deadline: float | None) -> None:
        """Wait for one of `events`, or for something to read where there is room for it."""
        poll = select.poll()  # one that waits already cannot wait for a signal's handler, too
        poll.register(self._end.fileno(), events | (select.POLLIN if self._has_room() else 0))
        if self._peer is not None:
            poll.register(self._peer, select.POLLIN)
        seconds = None if deadline is None else max(deadline - time.monotonic(), 0)
        ready = poll.poll(None if seconds is None else seconds * 1000)
        if any(descriptor == self._peer for descriptor, _ in ready):
            self._gone, self._peer = True, None

    def _check(self) -> None:
        """Raise OSError where the program has closed the socket, or given its number away."""
        if not self._is_ours():
            self._end.detach()  # or its finalizer would close what has the number now
            raise ConnectionAbortedError("the program has closed the connection")

    def _is_ours(self) -> bool:
        number = self._end.fileno()
        return number >= 0 and _identity(number) == self._identity

    def close(self) -> None:
        """Close this end."""
        if self._is_ours():
            self._end.close()
        else:
            self._end.detach()


def _parts(kind: int, payload: bytes) -> list[Part]:
    """A message in parts that each fit into a packet."""
    found: list[Part] = []
    for start in range(0, max(len(payload), 1), _PACKET):
        flags = (0 if start else _FIRST) | (_MORE if start + _PACKET < len(payload) else 0)
        found.append((kind, flags, payload[start : start + _PACKET]))
    return found


def _identity(descriptor: int) -> tuple[int, int] | None:
    """What tells the file behind a descriptor from all others; None where there is none."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect() -> tuple[socket.socket, socket.socket]:
    """Two connected ends, this process's own first. Raises OSError.

    The first gets a high number, so that the program's own files get those that they would get
    without it.
    """
    low, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with low:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        least = max(3, min(limit, 1024) - 64)
        try:
            high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, least)
        except OSError:
            other.close()
            raise
    return socket.socket(fileno=high), other
