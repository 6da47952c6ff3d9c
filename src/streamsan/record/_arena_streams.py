"""What the allocators of a real GPU make its streams and the host do, and the records of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from streamsan.model import records as r
from streamsan.record.cuda._driver import Context, Memory, Points, Token

if TYPE_CHECKING:
    from streamsan.record._arena import Arena


class ArenaMemory(Memory):
    """The driver's memory of one device."""

    def __init__(self, arena: Arena, index: int, context: Context) -> None:
        super().__init__(context)
        self._arena = arena
        self._index = index

    def release(self, address: int, size: int) -> None:
        """Give memory back, which joins the device (rule M3)."""
        super().release(address, size)
        self._arena.tell_join(self._index, "M3")


class ArenaStreams(Points):
    """The streams of one device. What a driver would do by itself is not reported."""

    def __init__(self, arena: Arena, index: int, context: Context) -> None:
        super().__init__(context)
        self._arena = arena
        self._index = index

    def all(self) -> list[int]:
        """The streams that were seen."""
        return self._arena.handles(self._index)

    def join(self) -> None:
        """Wait for the device: the thread that frees does (rule M6)."""
        super().join()
        self._arena.tell_join(self._index, "M6")


class ReportedToken(Token):
    """A reported event that an allocator recorded: its `number`, and whether it is `told`."""

    __slots__ = ("arena", "number", "thread", "told")

    def tell(self, arena: Arena, stream: int) -> None:
        """Report that it was recorded on the stream with this timeline."""
        self.arena = arena
        self.number = arena.observer.next_number()
        self.thread, stack = arena.caller()
        self.told = False

        def record() -> None:
            self.told = True
            arena.observer.emit(r.EventRecord(self.number, stream, self.thread, stack))

        arena.tell(record)

    def __del__(self) -> None:
        with suppress(Exception):  # at interpreter shutdown parts of us may be gone
            super().__del__()
            arena, record = self.arena, r.EventDestroy(self.number, self.thread)
            arena.observer.monitor.later(lambda: arena.tell(lambda: arena.observer.emit(record)))


class ReportedStreams(ArenaStreams):
    """The same where the allocator records and awaits events as a program would (rule M6)."""

    def record(self, stream: int) -> Token:
        """Record an event."""
        if not self._arena.watched:
            return super().record(stream)
        token = self.recorded(ReportedToken, stream)
        token.tell(self._arena, self._arena.timeline(self._index, stream))
        return token

    def order(self, stream: int, token: Token) -> None:
        """Let a stream wait for the event, done or not.

        An event recorded for an operand that the operator at work has given up is told after that
        operator, and so is a wait for it.
        """
        super().order(stream, token)
        if not isinstance(token, ReportedToken):
            return
        arena = self._arena
        wait = r.EventWait(token.number, arena.timeline(self._index, stream), *arena.caller())
        arena.tell(lambda: arena.observer.emit(wait), after=not token.told)
