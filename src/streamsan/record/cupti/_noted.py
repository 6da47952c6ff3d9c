"""What the driver's calls in the ring mean for the order, told when Python comes to it.

Between such a call and its telling, operators may have been enqueued on the same stream. A record
of an event then covers more than it did: no race is claimed for that.

Queries count for events on streams of other libraries only: torch's allocator asks for its own all
the time, and an order that it happens to learn is none that the program has made.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda import _gpu_trace as trace

from streamsan.model import records as r
from streamsan.record.cupti._calls import FREES, QUERIES, RECORDS, WAITS, stream_of

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder
    from streamsan.record.cupti._ring import Ring
    from streamsan.record.cupti._streams import SeenStreams

_LOST = "records of events that came faster than they could be told"


class Noted:
    """Tells the recorder of what a ring has noted."""

    names = (*RECORDS, *FREES, *WAITS, *QUERIES)

    def __init__(self, recorder: CudaRecorder, streams: SeenStreams) -> None:
        self._recorder = recorder
        self._streams = streams
        self._foreign: set[int] = set()
        self._told: Counter[int] = Counter()
        self._listening = False
        self.complete = False
        """Whether no record of an event can have been missed."""
        self._ring: Ring | None = None
        self._names: dict[int, str] = {}
        self._timelines: dict[int, int] = {}
        self._lock = threading.Lock()

    def follow(self, cupti: Any) -> None:
        """Take the entries of a subscription's ring, if it has one."""
        self._ring, self._names = cupti.ring, cupti.names
        if self._ring is not None and not self._listening:
            self._listening = True
            self.complete = not torch.cuda.is_initialized()
            trace.register_callback_for_event_record(lambda event, _: self.told(event))
            trace.register_callback_for_event_deletion(self._forget)

    def rest(self) -> None:
        """There is no subscription for a while."""
        self._ring, self.complete = None, False
        self._told.clear()

    def _forget(self, event: int) -> None:
        self._told.pop(event, None)

    def told(self, event: int) -> None:
        """An event was recorded just now, and somebody else tells of that."""
        if self._ring is not None:
            self._told[event] += 1

    @property
    def pending(self) -> bool:
        """Whether there is something to tell."""
        return self._ring is not None and self._ring.pending

    def tell(self) -> None:
        """Tell all of it. Entries of threads that Python does not know count as the caller's."""
        observer, ring = self._recorder.observer, self._ring
        mine = self._timelines[threading.get_ident()] = observer.thread()
        if ring is None or not self._lock.acquire(blocking=False):
            return  # another thread is at it
        try:
            for number, ident, first, second in ring.take():
                thread = self._timelines.get(ident, mine)
                self._one(self._names[number], thread, first, second)
            if ring.lost:
                self.complete = False
                observer.note_once("blind-spot", _LOST)
        finally:
            self._lock.release()

    def _one(self, name: str, thread: int, first: int, second: int) -> None:
        recorder = self._recorder
        streams, observer = recorder.streams, recorder.observer
        if name in FREES:
            observer.emit(r.DeviceSync(torch.cuda.current_device(), thread, r.NONE, "M3"))
        elif name in WAITS:
            if streams.knows_event(first):
                observer.emit(r.EventSync(streams.event(first), thread, r.NONE))
        elif name in QUERIES:
            if first in self._foreign:
                observer.emit(r.EventSync(streams.event(first), thread, r.NONE, query=True))
        elif self._told[first] > 0:
            self._told[first] -= 1
        else:
            self._record(first, stream_of(second, name.endswith("_ptsz")), thread)

    def _record(self, event: int, stream: int, thread: int) -> None:
        """Rule E1, for a record that nobody else tells of."""
        streams = self._recorder.streams
        timeline = self._streams.timeline(streams.device_of(stream), stream)
        streams.record(event, timeline, thread, r.NONE)
        foreign = timeline in self._streams.foreign
        (self._foreign.add if foreign else self._foreign.discard)(event)
