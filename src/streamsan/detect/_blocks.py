"""Blocks: what allocators hand out, from allocation to free."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from streamsan.model.records import NONE, Alloc
from streamsan.order import Clock

if TYPE_CHECKING:
    from streamsan.detect._latent import LatentGroup


_NOTHING: Mapping[int, Any] = {}
"""What most blocks have none of; a block that has some gets a mapping of its own."""


class Block:
    """A block: the bytes ``start`` to ``end`` (exclusive) of a space, and who may use them.

    `record` is the one that handed it out.
    `recorded` maps each stream that the allocator was told of to the stack of the user's own call
    (NONE: the framework's). `latent` maps timelines whose last use was not safe at the free to the
    finding and that use's epoch; `reused` says that the bytes have been handed out again.
    `released` is the clock of a free that is work of a stream (rule M4), `frontier` that of all
    streams at a free after which other streams come (rule M6). `guard` is what the next owner comes
    after, kept where a graph has `captured` its bytes: a launch is no owner. `threads` asked for
    the block, or for work that used it. `stream_ordered` tells whether allocation and free are
    points of its stream (rule M4), `freed_in_order` whether its free is work of its stream: that of
    M4, or a quarantine's poison. `policy` is that of its arena (rule M6), or nothing.
    """

    __slots__ = (
        "captured",
        "end",
        "free_stack",
        "freed",
        "freed_in_order",
        "frontier",
        "graph",
        "guard",
        "latent",
        "policy",
        "record",
        "recorded",
        "released",
        "reused",
        "space",
        "start",
        "stream",
        "stream_ordered",
        "threads",
    )

    def __init__(self, record: Alloc) -> None:
        """The block that `record` hands out."""
        self.record = record
        self.space, self.stream, self.graph = record.space, record.stream, record.graph
        self.start = record.address
        self.end = record.address + record.size
        self.stream_ordered, self.freed_in_order, self.policy = _manners(record.allocator)
        self.freed = self.reused = self.captured = False
        self.free_stack = NONE
        self.guard: Clock | None = None
        self.released: Clock | None = None
        self.frontier: Clock | None = None
        self.threads = _only(record.thread)
        self.recorded: Mapping[int, int] = _NOTHING
        self.latent: Mapping[int, tuple[LatentGroup, int]] = _NOTHING

    @property
    def stack(self) -> int:
        """Where it was asked for."""
        return self.record.stack

    @property
    def allocator(self) -> str:
        """The allocator, and its policy."""
        return self.record.allocator

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start


@lru_cache(1024)
def _only(thread: int) -> frozenset[int]:
    """A thread as a set of one, the same for all blocks."""
    return frozenset((thread,))


@lru_cache(64)
def _manners(allocator: str) -> tuple[bool, bool, str]:
    """What an allocator's name says of its blocks, as `Block` has it."""
    name, _, policy = allocator.partition(":")
    ordered = name == "stream-ordered"
    return ordered, ordered or allocator == "quarantine", policy if name == "bfc" else ""
