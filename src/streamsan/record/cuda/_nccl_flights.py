"""Memory of collectives in flight: who keeps it, and until when.

A process group keeps the tensors of a collective until somebody waits for its handle, and else
until it sees by itself that the collective is done (ProcessGroupNCCL.cpp, ``TensorShelf``). What is
freed without a wait therefore is free of the collective, although the program has no order with it:
that is what ``record_stream`` would have given (rule M2), so it is said to have been called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from streamsan.model import records as r

if TYPE_CHECKING:
    from streamsan.record.cuda._memory import Blocks


@dataclass(eq=False)
class Flight:
    """A collective nobody has waited for: its stream, and the numbers of the blocks it uses."""

    stream: int
    blocks: list[int]


class Flights:
    """The collectives of one process that nobody has waited for, by the events behind them."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._ends: dict[int, Flight] = {}
        self._futures: dict[int, list[int]] = {}

    def begin(self, end: int, stream: int, tensors: Iterable[torch.Tensor]) -> Flight:
        """A collective was issued; `end` is the native event recorded behind it, or 0."""
        flight = Flight(stream, self._numbers(tensors))
        if end:
            self._ends[end] = flight
        for number in flight.blocks:
            self._blocks.in_flight.setdefault(number, {})[stream] = flight
        return flight

    def promise(self, event: int, outputs: Iterable[torch.Tensor]) -> None:
        """An event was recorded for a future of `outputs`."""
        self._futures[event] = self._numbers(outputs)

    def waited(self, event: int, stream: int) -> None:
        """A stream waits for an event: that of a flight, or of a future, which records the stream
        on its tensors (rule M2; ``synchronizeWithCurrentStreams`` in ivalue_inl.h).
        """
        flight = self._ends.pop(event, None)
        if flight is not None:
            self.ended(flight)
        for number in self._futures.get(event, ()):
            self._blocks.record_block(number, stream)

    def ended(self, flight: Flight) -> None:
        """A stream waits for a collective: its blocks are kept no longer."""
        for number in flight.blocks:
            users = self._blocks.in_flight.get(number, {})
            if users.get(flight.stream) is flight:
                del users[flight.stream]

    def forget(self, event: int) -> None:
        """An event is gone, or was recorded for something else (rule E5)."""
        self._ends.pop(event, None)
        self._futures.pop(event, None)

    def _numbers(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        return sorted({self._blocks.number(tensor) for tensor in tensors} - {r.NONE})
