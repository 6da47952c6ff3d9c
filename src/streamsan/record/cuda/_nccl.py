"""Collectives on CUDA devices: operations of the stream that the process group chose (N1, N2).

torch's GPU trace shows the events by which a process group makes its own stream wait for the
current one before a collective (rule N1), and later the current stream for that one (rule N2). So
order needs nothing more; only the operation is missing, and which stream it ran on. That is told by
what happened while the collective was issued: a stream that was made to wait is the group's. Where
none was, the collective runs on the current stream, as the blocking form does since release 2.8.

Where the rules of memory come from: ProcessGroupNCCL.cpp (``TensorShelf``, ``pointToPoint``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda import _gpu_trace as trace

from streamsan.model import records as r
from streamsan.record.cuda._nccl_calls import Call, Communicator, of_method, of_operator
from streamsan.record.cuda._nccl_flights import Flight, Flights
from streamsan.record.cuda._operators import replay
from streamsan.virtual.face.collective_ops import MethodCall

if TYPE_CHECKING:
    from streamsan.record.cuda._recorder import CudaRecorder


EVERY = "*"
"""In the place of a communicator's key: all of them."""


class Inside(list[Callable[[], None]]):
    """What happened while a collective was issued, held back (rule C7).

    `waits` and `records` are waits for events and records of events, each with how many things had
    happened up to then, itself included.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[int, int]] = []
        self.records: list[tuple[int, int, int]] = []


@dataclass
class Handle:
    """What is known of the handle of a collective: its stream, and the event recorded behind it.

    `event` is NONE where another thread records it, as that of gloo does.
    """

    device: int
    stream: int
    event: int
    flight: Flight
    barrier: bool


@dataclass
class Region:
    """A coalesced region under way: what its collectives touch, by the stream they are for."""

    calls: list[tuple[int, Call]] = field(default_factory=list)


class Local(threading.local):
    """Per thread: the coalesced regions it is in, by the key of the communicator that each belongs
    to, and the handle of its last collective.
    """

    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self.handle: Handle | None = None

    def region_of(self, communicator: Communicator) -> Region | None:
        """The region that a communicator's collectives are in."""
        return self.regions.get(communicator.key) or self.regions.get(EVERY)


class Collectives:
    """Reports the collectives of one process."""

    def __init__(self, recorder: CudaRecorder) -> None:
        self._recorder = recorder
        self._streams = recorder.streams
        self._listening = False
        self.flights = Flights(recorder.blocks)
        self.local = Local()
        self.groups: dict[str, set[int]] = {}
        """Timelines of the streams of each communicator, by its key."""

    # -- from the dispatcher, and past it ---------------------------------------------------------

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator of ``torch.ops.c10d`` and report it."""
        call = self._recorder._guarded(lambda: of_operator(self._recorder, func, args, kwargs))
        return self._issue(call, lambda: func(*args, **kwargs))

    def call(
        self, method: str, original: Callable[..., Any], backend: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a method of a backend object and report it; what it runs is a part of it."""
        recorder = self._recorder
        if isinstance(recorder.local.inside, Inside):  # it is a part itself
            return original(backend, *args, **kwargs)
        call = recorder._guarded(
            lambda: of_method(recorder, backend, MethodCall(method, args, kwargs))
        )
        with recorder.hidden():
            return self._issue(call, lambda: original(backend, *args, **kwargs))

    def _issue(self, call: Call | None, issue: Callable[[], Any]) -> Any:
        if call is None:
            return issue()
        return self._watch(issue, lambda inside: self._issued(call, inside))

    def start_region(self, key: str) -> None:
        """This thread's collectives of a communicator, or of EVERY, are coalesced from here on."""
        self.local.regions[key] = Region()

    def take_region(self, key: str) -> Region | None:
        """That is over: what was coalesced, if anything."""
        return self.local.regions.pop(key, None)

    def launch(self, region: Region | None, issue: Callable[[], Any]) -> Any:
        """Call `issue`, which launches what was coalesced, as one operation of each stream."""
        if region is None or not region.calls:
            return issue()
        return self._watch(issue, lambda inside: self._coalesced(region, inside))

    def _watch(self, issue: Callable[[], Any], report: Callable[[Inside], None]) -> Any:
        """Call `issue`, and `report` what happened meanwhile; on failure just let it happen."""
        recorder = self._recorder
        self._listen()
        self.local.handle = None
        inside, outer = Inside(), recorder.local.inside
        recorder.local.inside = inside
        try:
            result = issue()
        except BaseException:
            recorder.local.inside = outer
            replay(recorder, inside)
            raise
        recorder.local.inside = outer
        recorder._guarded(lambda: report(inside))
        return result

    def _listen(self) -> None:
        """From the first collective on, note the events of those under way.

        torch calls back in the order of registration: the recorder has heard of each event first.
        """
        if self._listening:
            return
        self._listening = True
        trace.register_callback_for_event_wait(self._waited)
        trace.register_callback_for_event_record(self._recorded)
        trace.register_callback_for_event_deletion(self.flights.forget)

    def _waited(self, event: int, stream: int) -> None:
        inside = self._recorder.local.inside
        if isinstance(inside, Inside):
            inside.waits.append((len(inside), stream))
        else:
            self._recorder._guarded(
                lambda: self.flights.waited(event, self._streams.of_handle(stream))
            )

    def _recorded(self, event: int, stream: int) -> None:
        inside = self._recorder.local.inside
        if isinstance(inside, Inside):
            inside.records.append((len(inside), event, stream))
        else:
            self.flights.forget(event)

    # -- reports ----------------------------------------------------------------------------------

    def _issued(self, call: Call, inside: Inside) -> None:
        """A collective was issued: report it on its stream, between the events around it."""
        if call.device < 0:
            self._on_host(call, inside)
            return
        stream, handle, behind = self._place(call, inside)
        region = self.local.region_of(call.communicator)
        if region is not None:
            region.calls.append((stream, call))
            replay(self._recorder, inside)
            return
        replay(self._recorder, inside[:behind])
        self._recorder.operation(int(r.OpKind.COLLECTIVE), call.name, stream, call.accesses)
        replay(self._recorder, inside[behind:])
        if inside.waits:
            ends = [event for at, event, on in inside.records if at > behind and on == handle]
            self._in_flight(stream, [call], ends[-2:][0] if ends else 0)
            if len(ends) > 1:  # the last one is for the handle's future
                outputs = [tensor for tensor, _, mode, _ in call.found if mode & r.Mode.WRITE]
                self.flights.promise(ends[-1], outputs)

    def _place(self, call: Call, inside: Inside) -> tuple[int, int, int]:
        """Timeline and native handle of a collective's stream, and what happened before it."""
        if not inside.waits:
            handle = torch._C._cuda_getCurrentRawStream(call.device)
            return self._streams.define(call.device, handle), handle, 0
        behind, handle = inside.waits[-1]
        name = call.communicator.name
        if call.peer is not None and self.local.region_of(call.communicator) is None:
            name = f"{name} rank {call.peer}"
        stream = self._streams.define(call.device, handle, name)
        self.groups.setdefault(call.communicator.key, set()).add(stream)
        return stream, handle, behind

    def _coalesced(self, region: Region, inside: Inside) -> None:
        """A coalesced region has ended: what it issued runs now, as one operation a stream."""
        for stream in dict.fromkeys(stream for stream, _ in region.calls):
            calls = [call for on, call in region.calls if on == stream]
            names = {call.name for call in calls}
            name = names.pop() if len(names) == 1 else f"{calls[0].communicator.backend}::coalesced"
            accesses = [access for call in calls for access in call.accesses]
            self._recorder.operation(int(r.OpKind.COLLECTIVE), name, stream, accesses)
            if stream in self.groups.get(calls[0].communicator.key, ()):
                end = inside.records[-1][1] if inside.records else 0
                self._in_flight(stream, calls, end)
        replay(self._recorder, inside)

    def _in_flight(self, stream: int, calls: list[Call], end: int) -> None:
        """The group keeps what a collective uses until somebody waits for its handle.

        Messages are recorded on their stream instead (rule M2).
        """
        blocks = self._recorder.blocks
        tensors = [tensor for call in calls for tensor, owner, _, _ in call.found if owner >= 0]
        if calls[0].peer is not None:
            for tensor in tensors:
                blocks.record_stream(tensor, stream, explicit=False)
            tensors = []
        flight = self.flights.begin(end, stream, tensors)
        event = self._streams.event(end) if end else r.NONE
        self.local.handle = Handle(calls[0].device, stream, event, flight, calls[0].barrier)

    def _on_host(self, call: Call, inside: Inside) -> None:
        """A collective of host tensors: the calling thread's access to what is pinned of them."""
        replay(self._recorder, inside)
        if call.accesses:
            thread = self._recorder.observer.thread()
            self._recorder.operation(int(r.OpKind.HOST), call.name, thread, call.accesses)
