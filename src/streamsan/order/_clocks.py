"""Vector clocks, timelines, and versions of events."""

from __future__ import annotations

from typing import NamedTuple

from streamsan.model.records import NONE

Clock = dict[int, int]
"""For each timeline, the epoch up to which its operations come before; a missing one means none."""


def join(into: Clock, other: Clock) -> None:
    """Raise each component of `into` to that of `other`."""
    get = into.get
    for timeline, epoch in other.items():
        if get(timeline, 0) < epoch:
            into[timeline] = epoch


class Timeline:
    """A stream or a host thread: its clock, and the epoch of its latest operation.

    Whenever a clock gains an order, its own epoch goes up before any other timeline can take it
    over. So who has reached `epoch` of this timeline has all of `clock` and need not join it.

    `gained` is a thread's epoch at its last gain; `handed` says that the current epoch has been
    handed to another timeline, so that the thread's next access needs a new one; `worked` is the
    epoch of a stream's latest operation other than an event record or wait, or of a thread's latest
    access; `peers` are the
    streams that rule D1 orders this one after.
    """

    __slots__ = (
        "blocking",
        "clock",
        "default",
        "device",
        "epoch",
        "gained",
        "handed",
        "is_stream",
        "number",
        "peers",
        "worked",
    )

    def __init__(self, number: int, is_stream: bool) -> None:
        """A timeline without any order; a thread starts in its first epoch."""
        self.number = number
        self.is_stream = is_stream
        self.epoch = self.gained = 0 if is_stream else 1
        self.clock: Clock = {} if is_stream else {number: 1}
        self.handed = False
        self.worked = 0
        self.device = NONE
        self.default = self.blocking = False
        self.peers: list[Timeline] = []


class Version(NamedTuple):
    """What one record of an event, or one launch of a graph, captured of its stream (rule E1).

    `clock` is the stream's at that point, `worked` the epoch of the last operation proper,
    `number` counts the versions of one event from 1, and `stack` is where it was recorded.
    """

    stream: int
    epoch: int
    clock: Clock
    worked: int
    number: int
    stack: int
