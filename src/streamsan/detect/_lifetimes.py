"""Lifetimes of blocks: what allocation, free and marks mean for the memory's history."""

from __future__ import annotations

from collections.abc import Callable

from streamsan.detect._blocks import Block
from streamsan.detect._division import Division
from streamsan.detect._facts import LIFETIME
from streamsan.detect._findings import Mistake
from streamsan.detect._latent import LatentGroup, nearest_edge, settle, unsafe_uses
from streamsan.detect._names import Line, Names
from streamsan.detect._segments import Use
from streamsan.detect._shadow import Shadow, forget_guarded, last_uses
from streamsan.model.records import (
    NONE,
    Access,
    Alloc,
    Free,
    GraphDestroy,
    Mode,
    Operation,
    OpKind,
    RecordStream,
)
from streamsan.order import Clock, Order

Touch = Callable[[Operation, int, Clock], None]
"""Files an operation with its epoch and clock, and reports its races."""


class Lifetimes:
    """The blocks of a run, and the latent races that they leave.

    `latent` maps pairs of lines, of the use and of the free, to what was found there.
    """

    def __init__(
        self,
        order: Order,
        names: Names,
        shadow: Callable[[int], Shadow],
        *,
        touch: Touch,
        mistake: Callable[[Mistake], None],
        division: Division | None = None,
    ) -> None:
        """No block yet.

        `shadow` gives the shadow memory of an address space, `touch` files the points of
        stream-ordered memory, and `mistake` takes a misuse. A `division` says which blocks to
        follow.
        """
        self.at = 0
        """The number of the record being fed."""
        self._division = division
        self.latent: dict[tuple[Line, Line], LatentGroup] = {}
        self._blocks: dict[int, Block] = {}
        self._order, self._names = order, names
        self._shadow, self._touch, self._mistake = shadow, touch, mistake

    def alloc(self, record: Alloc) -> None:
        """A block is handed out: no order (M1, M3), or a point of its stream (M4)."""
        division = self._division
        if division is not None and not division.owns(record.space, record.address):
            return
        block = self._blocks[record.block] = Block(record)
        former = self._shadow(block.space).hand_out(block)
        for old in former:
            if old.latent:
                settle(self._order, old, block.stream, record.thread)
            old.reused = True
            if old.guard is not None:
                self._come_after(old.guard, old, block)
            if old.frontier is not None and old.stream != block.stream:
                self._come_after(old.frontier, old, block)
        if block.stream_ordered and block.stream != NONE:
            released = [old.released for old in former if old.released is not None]
            self._point(block, "allocation", record.thread, record.stack, released)

    def free(self, record: Free) -> None:
        """A block is given up: its guard (M2, M5, M6) and latent races, or a stream's point (M4).

        G3: a block of a graph's private pool stays the graph's; its free means nothing.
        """
        block = self._blocks.pop(record.block, None)
        if block is None:
            return
        block.freed, block.free_stack = True, record.stack
        if block.graph != NONE:
            return
        shadow = self._shadow(block.space)
        if block.freed_in_order and block.stream != NONE:
            self._release(block, record)
            shadow.clear(block)
            return
        guard = self._guard(block, record.thread)
        segments = shadow.segments.cover(block.start, block.end)
        if block.stream != NONE and block.policy != "event":  # whose every next owner waits
            uses = last_uses(segments, block)
            if uses:
                self._find_latent(block, record, uses, guard)
        if block.captured:
            block.guard = dict(guard)
        else:
            forget_guarded(segments, guard)

    def _guard(self, block: Block, thread: int) -> Clock:
        """What a free by `thread`, or all next owners of the block, come after (M2, M5, M6, T1).

        M6: an arena knows no recorded streams, but for `frontier`, where such a block is foreign to
        every stream. What `host-sync` and `event` order is in the trace by itself.
        """
        recorded = block.recorded
        if thread not in block.threads:
            block.threads |= {thread}
        guard = self._order.memory_guard(block.threads, () if block.policy else recorded)
        if block.policy == "frontier":
            frontier = self._order.frontier(guard, block.space)
            if recorded:
                return frontier
            block.frontier = frontier
        return guard

    def _come_after(self, clock: Clock, old: Block, new: Block) -> None:
        """The owner of `new` comes after `clock`, where its bytes were those of `old`: the guard of
        that one's free (M2), or (M6, `frontier`, for other streams than its owner's) all before it.
        """
        start, end = max(old.start, new.start), min(old.end, new.end)
        forget_guarded(self._shadow(new.space).segments.cover(start, end), clock)

    def mark(self, record: RecordStream) -> None:
        """Rule M2: the allocator is told that a stream uses a block."""
        block = self._blocks.get(record.block)
        if block is not None:
            stack = record.stack if record.explicit else NONE
            block.recorded = {**block.recorded, record.stream: stack}

    def forget_threads(self, gone: set[int]) -> None:
        """Threads have ended, and all to come is ordered after what they did."""
        for block in self._blocks.values():
            block.threads -= gone

    def destroy_graph(self, record: GraphDestroy) -> None:
        """Rule G3 ends: blocks of the graph's private pool are ordinary blocks from now on."""
        self._order.forget_graph(record.graph)
        for block in self._blocks.values():
            if block.graph == record.graph:
                block.graph = NONE

    def _find_latent(self, block: Block, record: Free, uses: dict[int, Use], guard: Clock) -> None:
        if self._division is not None and not self._division.tells(block.space, block.start):
            return
        unsafe = unsafe_uses(self._order, uses, block, guard)
        for nth, (timeline, use) in enumerate(unsafe.items()):
            key = (self._names.key(use[1]), self._names.line(record.stack))
            group = self.latent.get(key)
            if group is None:
                edge = nearest_edge(self._order, timeline, block, record.thread)
                group = self.latent[key] = LatentGroup(use, block, record, edge, (self.at, nth))
            group.count += 1
            block.latent = {**block.latent, timeline: (group, use[0])}
        mark = block.recorded.get(block.stream, NONE)
        if unsafe and mark != NONE:
            text = "record_stream names the block's own stream; another stream uses it unmarked"
            users = ", ".join(self._names.expression(timeline) for timeline in unsafe)
            repair = [f"name the stream that uses the block: record_stream({users})"]
            self._mistake(
                Mistake("R03-ALLOC-REUSE", text, record.thread, mark, block.stream, repair, block)
            )

    # Rule M4

    def _point(self, block: Block, name: str, thread: int, stack: int, after: list[Clock]) -> Clock:
        """Rule M4: an allocation or a free is a point of its stream, `after` given clocks."""
        stream = self._order.stream(block.stream)
        epoch = self._order.operate(stream, thread)
        clock = stream.clock
        for other in after:
            self._order.stream_ordered(stream, other)
        access = Access(block.space, block.start, block.size, (), (), int(Mode.WRITE), "block")
        op = Operation(LIFETIME, int(OpKind.KERNEL), name, block.stream, thread, stack, (access,))
        self._touch(op, epoch, clock)
        return clock

    def _release(self, block: Block, record: Free) -> None:
        """Rule M4: the free comes after what M2 and T1 say of other frees."""
        guard = self._guard(block, record.thread)
        clock = self._point(block, "free", record.thread, record.stack, [guard])
        block.released = clock.copy()
