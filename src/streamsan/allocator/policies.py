"""When the next owner may have a freed chunk of the arena: the policies of rule M6.

A policy marks a chunk when it is freed (`Block.mark`), and says later to whom it may be handed out
and what must come before. The policies are those of XLA's and TensorFlow's GPU clients: buffers
that are given up while the device still runs (``AllowsAsynchronousDeallocation``), clients
that wait instead, the arena's ``freed_at_count`` with its safe frontier, and usage events.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from streamsan.allocator.contract import Block, Streams


class Policy:
    """What a free does while the device still runs; by default nothing.

    With `watches_uses` it has to know of every stream that uses a block (`Block.users`).
    """

    name: str
    watches_uses = False

    def freed(self, block: Block) -> None:
        """Mark a block that was just given up; its `stream` and `users` are still those it had."""

    def ready(self, block: Block, stream: int) -> bool:
        """Whether a free block may be handed out to `stream` now."""
        return True

    def taken(self, block: Block, stream: int) -> None:
        """A free block is handed out to `stream`."""

    def mergeable(self, low: Block, high: Block) -> bool:
        """Whether two free neighbours may become one block."""
        return True

    def merge(self, low: Block, high: Block) -> None:
        """Mark `low` for both of two free neighbours."""

    def poll(self) -> bool:
        """Ask how far the device has come; whether more blocks may be ready or merged now."""
        return False

    def advance(self) -> bool:
        """No ready block was found: `poll` for those freed until now, too."""
        return False

    def wait(self) -> bool:
        """Memory is short: wait for the device if that makes more blocks ready, and say so."""
        return False


class Async(Policy):
    """A chunk is free at once, for any stream: only a single compute stream protects it."""

    name = "async"


class HostSync(Policy):
    """A free waits until the device has finished; then the chunk is anybody's."""

    name = "host-sync"

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def freed(self, block: Block) -> None:
        """Wait for the device."""
        self._streams.join()


class Stamp(NamedTuple):
    """A chunk was freed before frontier `number` was drawn; only `stream` may have it earlier."""

    number: int
    stream: int | None


class Frontier(Policy):
    """A chunk is stamped with a counter; foreign streams get it when the device has passed that.

    The counter is that of frontiers: points of all streams, drawn only when a request finds no
    chunk, so that frees cost nothing. A frontier is safe once all streams have come past it; the
    chunks freed before it was drawn are then anybody's. The stream that owned a chunk alone may
    have it at once, behind its own work.
    """

    name = "frontier"

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._drawn = 0
        self._safe = 0
        self._stamped = 0
        self._frontiers: deque[list[Any]] = deque()

    def freed(self, block: Block) -> None:
        """Stamp it with the number of the next frontier."""
        self._stamped = self._drawn + 1
        block.mark = Stamp(self._stamped, None if block.users else block.stream)

    def _pending(self, block: Block) -> bool:
        return block.mark is not None and block.mark.number > self._safe

    def ready(self, block: Block, stream: int) -> bool:
        """The owner may have it, and others behind a safe frontier."""
        return not self._pending(block) or block.mark.stream == stream

    def mergeable(self, low: Block, high: Block) -> bool:
        """Safe chunks may, and those that the same stream alone may have."""
        pending = self._pending(low), self._pending(high)
        return pending == (False, False) or (
            pending == (True, True) and low.mark.stream == high.mark.stream
        )

    def merge(self, low: Block, high: Block) -> None:
        """The later stamp counts."""
        low.mark = max(low.mark, high.mark) if self._pending(low) else None

    def poll(self) -> bool:
        """Let the safe frontier move as far as the device has come; whether it has."""
        before = self._safe
        while self._frontiers and all(map(self._streams.done, self._frontiers[0])):
            self._pass()
        return self._safe > before

    def advance(self) -> bool:
        """Draw a frontier if chunks were freed since the last; whether the safe one has moved."""
        if self._stamped > self._drawn:
            self._drawn += 1
            self._frontiers.append([self._streams.record(s) for s in self._streams.all()])
        return self.poll()

    def wait(self) -> bool:
        """Wait for all frontiers."""
        before = self._safe
        while self._frontiers:
            for token in self._frontiers[0]:
                self._streams.wait(token)
            self._pass()
        return self._safe > before

    def _pass(self) -> None:
        self._frontiers.popleft()
        self._safe += 1


Tokens = dict[int, tuple[int, Any]]
"""By stream: the serial number of a free, and the token for the stream's work until then."""


class Event(Policy):
    """A free records an event on each stream that used the chunk; the next owner waits for them."""

    name = "event"
    watches_uses = True

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._serial = 0

    def freed(self, block: Block) -> None:
        """Record the events."""
        self._serial += 1
        record = self._streams.record
        tokens: Tokens = {s: (self._serial, record(s)) for s in (block.stream, *block.users)}
        block.mark = tokens

    def taken(self, block: Block, stream: int) -> None:
        """Let `stream` wait for the events of all others, done or not: that is what orders them."""
        for other, (_, token) in (block.mark or {}).items():
            if other != stream:
                self._streams.order(stream, token)

    def merge(self, low: Block, high: Block) -> None:
        """All events count, the latest of each stream."""
        tokens: Tokens = dict(low.mark or {})
        for stream, entry in (high.mark or {}).items():
            if stream not in tokens or entry[0] > tokens[stream][0]:
                tokens[stream] = entry
        low.mark = tokens
