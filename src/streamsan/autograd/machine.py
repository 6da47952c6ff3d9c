"""What the engine needs of the devices: streams that are current, events, and who owns a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Stream = Any
"""A stream of a machine; it can be compared and hashed."""

Streams = dict[int, Stream]
"""Streams by device; a device that is left out is on its default stream."""

Event = Any


class Machine(Protocol):
    """The devices of this process. All calls are about the calling thread's current streams."""

    places: bool
    """Whether torch's engine puts each node on the stream of its forward operation by itself and
    orders the gradients in between, as it does in a CUDA build. Else `Placed` has to."""

    def begins(self) -> bool:
        """A pass is about to begin; whether there are streams to think of."""

    def capturing(self) -> bool:
        """Whether a current stream is being captured into a graph."""

    def devices(self) -> Sequence[int]:
        """The devices in use."""

    def default(self, device: int) -> Stream:
        """The default stream of a device."""

    def device(self, stream: Stream) -> int:
        """The device of a stream."""

    def current(self) -> Streams:
        """A copy of the current streams."""

    def make_current(self, streams: Streams) -> None:
        """Make exactly these streams current; the current device stays."""

    def record(self, stream: Stream) -> Event:
        """A new event, recorded on a stream (E1)."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Let later work of a stream wait for an event (E2)."""

    def owner(self, tensor: Any) -> int:
        """The device that a tensor lives on; negative where that is none."""

    def record_stream(self, tensor: Any, stream: Stream) -> None:
        """Tell the allocator that a stream uses a tensor (M2)."""

    def name(self, stream: Stream) -> str:
        """What to call a stream in an account."""


class PlacingMachine(Machine, Protocol):
    """A machine on which the engine has to put the nodes on their streams."""

    def streams_of(self, node: Any) -> Streams:
        """The streams that were current when `node` was made (A1)."""


class ScratchMachine(Machine, Protocol):
    """A machine on which torch's engine does, and lets the current streams wait at its end."""

    def scratch(self, taken: Streams) -> Streams:
        """A stream of nobody's for each device in use, none of them in `taken`."""
