"""What an allocator asks of its surroundings and offers to its caller.

An allocator here decides addresses and nothing else: it holds no bytes, knows no framework, and
takes no lock (its caller does). Streams and pools are numbers of the caller's; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypedDict

from streamsan.allocator.statistics import Statistics


class OutOfMemory(MemoryError):  # noqa: N818 - the term of the field
    """No block of the size asked for, even after all cached memory was given back.

    All figures are bytes: `requested` as asked for, `capacity` of the device, `allocated` in
    live blocks, and `reserved` from the driver, which includes those blocks.
    """

    def __init__(self, requested: int, capacity: int, allocated: int, reserved: int) -> None:
        super().__init__(
            f"out of memory: tried to allocate {requested} bytes; of {capacity} bytes in all, "
            f"{reserved} are reserved and {allocated} of these are allocated"
        )
        self.requested = requested
        self.capacity = capacity
        self.allocated = allocated
        self.reserved = reserved


class CaptureRefused(RuntimeError):  # noqa: N818 - as above
    """A graph capture needs private pools (rule G3), which the allocator `name` has not got."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the {name} allocator cannot serve a graph capture, which needs memory of its own:"
            " run the program with the caching allocator (--allocator caching)"
        )


class Driver(Protocol):
    """Where segments come from: the driver's own allocation calls, or an arena of ours."""

    def reserve(self, size: int) -> int | None:
        """Return the address of a fresh segment of `size` bytes, or None: there is no more."""

    def release(self, address: int, size: int) -> None:
        """Give a whole segment back. On a device this joins all of its streams (rule M3)."""


class Events(Protocol):
    """How an allocator learns that a stream has come past a point. Tokens are opaque to it."""

    def record(self, stream: int) -> Any:
        """Return a token for all work `stream` has enqueued so far (rule E1)."""

    def done(self, token: Any) -> bool:
        """Say whether that work has finished, without blocking."""

    def wait(self, token: Any) -> None:
        """Block until that work has finished."""


class Streams(Events, Protocol):
    """The streams of one device, for an allocator that moves memory between them."""

    def all(self) -> Iterable[int]:
        """All streams of the device that may have work."""

    def order(self, stream: int, token: Any) -> None:
        """Let later work of `stream` wait for a token, without blocking the host (rule E2)."""

    def join(self) -> None:
        """Block until all streams of the device have finished (rule H2)."""

    def fill(self, stream: int, address: int, size: int) -> None:
        """Enqueue on `stream` that all bytes of a range become 0xFF: NaN in any floating type."""


class Block:
    """A range of bytes handed out, or waiting to be.

    `address` and `size` (rounded) say where it is, `requested` what was asked for, `stream` and
    `pool` whom it is filed under. `users` are the other streams recorded on it, `pending` the
    number of their events not seen done since it was freed, `previous` and `next` its neighbours
    in the segment. `mark` is what an arena's policy notes on a free block: what its next owner
    must come after. The object may be handed out again after its free: do not keep it.
    """

    __slots__ = (
        "address", "allocated", "mark", "next", "pending", "pool", "previous", "requested",
        "size", "small", "stream", "users",
    )  # fmt: skip

    def __init__(self, address: int, size: int, stream: int, pool: int, small: bool) -> None:
        self.address = address
        self.size = size
        self.requested = 0
        self.stream = stream
        self.pool = pool
        self.small = small
        self.allocated = False
        self.users: list[int] = []
        self.pending = 0
        self.mark: Any = None
        self.previous: Block | None = None
        self.next: Block | None = None

    @property
    def free(self) -> bool:
        """Whether the block can be handed out: not live, and no event of it outstanding."""
        return not (self.allocated or self.pending or self.users)

    @property
    def part(self) -> bool:
        """Whether the block is one of several in its segment."""
        return self.previous is not None or self.next is not None

    @property
    def state(self) -> str:
        """The state as ``torch.cuda.memory_snapshot`` names it."""
        if self.allocated:
            return "active_allocated"
        return "inactive" if self.free else "active_pending_free"

    def __repr__(self) -> str:
        return f"<Block {self.address:#x}+{self.size} stream {self.stream} {self.state}>"


class BlockInfo(TypedDict):
    """A block of a snapshot."""

    address: int
    size: int
    requested_size: int
    state: str


class SegmentInfo(TypedDict):
    """A segment of a snapshot, in the shape of ``torch.cuda.memory_snapshot``."""

    address: int
    total_size: int
    allocated_size: int
    active_size: int
    requested_size: int
    stream: int
    segment_type: str
    segment_pool_id: tuple[int, int]
    blocks: list[BlockInfo]


class Allocator(Protocol):
    """What every allocator offers. The caller holds a lock around each call.

    `capacity` is the most bytes it takes from its driver, and may be changed at any time. With
    `watches_uses`, the caller tells `record_stream` of every use of a block by a stream other
    than its owner, not only of those that the program records.
    """

    capacity: int
    watches_uses: bool

    @property
    def name(self) -> str:
        """The name, with its policy after a colon where there are several: ``bfc:async``."""

    def allocate(self, size: int, stream: int, pool: int = 0) -> Block:
        """Hand out a block of at least `size` > 0 bytes for `stream`. Raises OutOfMemory."""

    def free(self, block: Block) -> None:
        """Take `block` back from the program. Raises ValueError where it is not live."""

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that `stream` uses the live `block`; what that is worth is the allocator's rule.

        Raises ValueError where the block is not live.
        """

    def empty_cache(self) -> None:
        """Give unused memory back to the driver."""

    def retain_pool(self, pool: int) -> None:
        """Count one more graph that uses a private pool. Raises CaptureRefused without pools."""

    def release_pool(self, pool: int) -> None:
        """Count one graph less that uses a private pool."""

    def begin_capture(self) -> None:
        """Record and query no event until `end_capture`."""

    def end_capture(self) -> None:
        """End one capture."""

    def stats(self) -> Statistics:
        """Copy the figures as of now."""

    def reset_peak(self) -> None:
        """Start all peaks over at the current figures."""

    def reset_accumulated(self) -> None:
        """Start the sums and the counters over at zero."""

    def snapshot(self) -> list[SegmentInfo]:
        """List all segments by address, each with its blocks."""
