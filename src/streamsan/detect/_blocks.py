"""Blocks: what allocators hand out, from allocation to free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsan.model.records import NONE, Alloc
from streamsan.order import Clock

if TYPE_CHECKING:
    from streamsan.detect._latent import LatentGroup


class Block:
    """A block: the bytes ``start`` to ``end`` (exclusive) of a space, and who may use them.

    `recorded` maps each stream that the allocator was told of to the stack of the user's own call
    (NONE: the framework's). `latent` maps timelines whose last use was not safe at the free to the
    finding and that use's epoch; `reused` says that the bytes have been handed out again.
    `released` is the clock of a free that is work of a stream (rule M4), `frontier` that of all
    streams at a free after which other streams come (rule M6). `threads` asked for the block, or
    for work that used it.
    """

    __slots__ = (
        "allocator",
        "end",
        "free_stack",
        "freed",
        "frontier",
        "graph",
        "latent",
        "number",
        "recorded",
        "released",
        "reused",
        "space",
        "stack",
        "start",
        "stream",
        "threads",
    )

    def __init__(self, record: Alloc) -> None:
        """The block that `record` hands out."""
        self.number, self.space, self.graph = record.block, record.space, record.graph
        self.start, self.end = record.address, record.address + record.size
        self.stream, self.stack, self.allocator = record.stream, record.stack, record.allocator
        self.freed = self.reused = False
        self.free_stack = NONE
        self.recorded: dict[int, int] = {}
        self.threads = {record.thread}
        self.latent: dict[int, tuple[LatentGroup, int]] = {}
        self.released: Clock | None = None
        self.frontier: Clock | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start

    @property
    def stream_ordered(self) -> bool:
        """Whether allocation and free are points of its stream (rule M4)."""
        return self.allocator.partition(":")[0] == "stream-ordered"

    @property
    def freed_in_order(self) -> bool:
        """Whether its free is work of its stream: that of M4, or a quarantine's poison."""
        return self.stream_ordered or self.allocator == "quarantine"

    @property
    def policy(self) -> str:
        """The policy of its arena (rule M6), or nothing."""
        name, _, policy = self.allocator.partition(":")
        return policy if name == "bfc" else ""
