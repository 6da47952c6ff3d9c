"""A naive model of streams and memory, which holds every allocator to its rule.

The model knows nothing of how an allocator works. It keeps, for each range of bytes, all who ever
owned it and how far every stream had come when they gave it up, and asks at each hand-over whether
the rule of the allocator allows it. Work of a stream is a number that counts up; a clock says how
much work of each stream comes before a point.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamsan.allocator import Allocator, Block, OutOfMemory, SegmentInfo, make_allocator

Clock = dict[int, int]
Token = tuple[int, int]
"""A stream and a number of its work."""
Step = tuple[str, int, int]
"""What to do next: an operation and two numbers that it makes its choices with."""

MIB = 1 << 20
STREAMS = (0, 1, 2)
OPERATIONS = (
    "allocate", "allocate", "allocate", "free", "free", "record", "work", "finish", "join",
    "empty_cache",
)  # fmt: skip
SIZES = (1, 255, 256, 257, 1000, 5000, 65_536, MIB - 1, MIB, MIB + 1, 3 * MIB, 5 * MIB, 17 * MIB)


class FakeStreams:
    """Streams that come as far as the test says."""

    def __init__(self) -> None:
        self.given: Clock = dict.fromkeys(STREAMS, 0)
        self.reached: Clock = dict.fromkeys(STREAMS, 0)
        self.clocks: dict[int, list[Clock]] = {s: [{}] for s in STREAMS}
        self.next: dict[int, Clock] = {s: {} for s in STREAMS}
        self.fills: list[tuple[int, int, Token, Clock]] = []

    def work(self, stream: int) -> Token:
        """Give a stream one more piece of work."""
        self.given[stream] += 1
        self.next[stream][stream] = self.given[stream]
        self.clocks[stream].append(dict(self.next[stream]))
        return stream, self.given[stream]

    def finish(self, stream: int, number: int) -> None:
        """Let a stream come up to a piece of work, and others as far as that needs."""
        for other, needed in {**self.clocks[stream][number], stream: number}.items():
            self.reached[other] = max(self.reached[other], needed)

    def record(self, stream: int) -> Token:
        return stream, self.given[stream]

    def done(self, token: Token) -> bool:
        return self.reached[token[0]] >= token[1]

    def wait(self, token: Token) -> None:
        self.finish(*token)

    def all(self) -> list[int]:
        return [s for s in STREAMS if self.reached[s] < self.given[s]]

    def order(self, stream: int, token: Token) -> None:
        for other, needed in {**self.clocks[token[0]][token[1]], token[0]: token[1]}.items():
            clock = self.next[stream]
            clock[other] = max(clock.get(other, 0), needed)
        self.work(stream)  # the wait itself, which a later record covers

    def before(self, stream: int) -> Clock:
        """The work of other streams that the next work of `stream` comes after."""
        return {s: n for s, n in self.next[stream].items() if s != stream}

    def join(self) -> None:
        self.reached.update(self.given)

    def fill(self, stream: int, address: int, size: int) -> None:
        before = dict(self.next[stream])
        self.fills.append((address, size, self.work(stream), before))


class FakeDriver:
    """Segments at ever higher addresses; giving one back joins the device (M3)."""

    def __init__(self, capacity: int, streams: FakeStreams) -> None:
        self.left = capacity
        self.next = 1 << 30
        self.segments: dict[int, int] = {}
        self._streams = streams

    def reserve(self, size: int) -> int | None:
        if size > self.left:
            return None
        self.left -= size
        address, self.next = self.next, self.next + size + 4096
        self.segments[address] = size
        return address

    def release(self, address: int, size: int) -> None:
        self._streams.join()
        assert self.segments.pop(address) == size
        self.left += size


@dataclass
class Tenure:
    """One ownership of bytes: who had them, and all work given to the device up to the free."""

    start: int
    end: int
    owner: int
    users: frozenset[int]
    given: Clock
    poison: Token | None


def may_follow(name: str, old: Tenure, stream: int, streams: FakeStreams) -> bool:
    """Whether the rule of allocator `name` lets `stream` have bytes that `old` gave up."""
    over = all(streams.reached[s] >= old.given[s] for s in STREAMS)
    users_over = all(streams.reached[s] >= old.given[s] for s in old.users)
    clock = streams.next[stream]
    before = all(
        s == stream or clock.get(s, 0) >= old.given[s] for s in (old.owner, *sorted(old.users))
    )
    return {
        "caching": old.owner == stream and users_over,  # M1, M2
        "bfc:async": True,  # M6: at once, by any stream
        "bfc:host-sync": over,
        "bfc:frontier": over or (old.owner == stream and not old.users),
        "bfc:event": before,
        "stream-ordered": before,  # M4
        "quarantine": over and old.poison is not None and streams.done(old.poison),
    }[name]


class World:
    """One allocator, the program that uses it, and the model of both."""

    def __init__(self, name: str, capacity: int = 96 * MIB) -> None:
        self.name = name
        self.streams = FakeStreams()
        self.driver = FakeDriver(capacity, self.streams)
        self.allocator: Allocator = make_allocator(name, self.driver, self.streams, capacity)
        self.live: list[Block] = []
        self.users: dict[int, set[int]] = {}
        self.past: list[Tenure] = []

    def run(self, steps: list[Step]) -> None:
        """Do all steps, and check everything after each."""
        for operation, one, other in steps:
            getattr(self, operation)(one, other)
            self.check()

    # -- steps ------------------------------------------------------------------------------------

    def allocate(self, one: int, other: int) -> None:
        size = SIZES[one % len(SIZES)] + other % 700
        stream = STREAMS[other % len(STREAMS)]
        best = self.best_fit(size) if self.name == "bfc:async" else None
        try:
            block = self.allocator.allocate(size, stream)
        except OutOfMemory:
            assert not self.could_serve(size)
            return
        assert block.size >= size
        assert (block.requested, block.stream) == (size, stream)
        assert block.address % 256 == block.size % 256 == 0
        assert best is None or block.address == best
        start, end = block.address, block.address + block.size
        assert any(low <= start and end <= low + n for low, n in self.driver.segments.items())
        for other_block in self.live:
            assert end <= other_block.address or other_block.address + other_block.size <= start
        for old in self.past:
            if old.start < end and start < old.end:
                assert may_follow(self.name, old, stream, self.streams), (old, stream)
        self.live.append(block)
        self.users[start] = set()

    def free(self, one: int, _: int) -> None:
        if not self.live:
            return
        block = self.live.pop(one % len(self.live))
        start, size, users = block.address, block.size, self.users.pop(block.address)
        given, owner = dict(self.streams.given), block.stream
        self.streams.fills.clear()
        self.allocator.free(block)
        poison = None
        if self.name == "quarantine":
            ((low, length, poison, before),) = self.streams.fills
            assert (low, length, poison[0]) == (start, size, owner)
            assert all(before.get(s, 0) >= given[s] for s in users)
        if self.name == "bfc:host-sync":
            assert self.streams.reached == self.streams.given
        self.past.append(Tenure(start, start + size, owner, frozenset(users), given, poison))

    def record(self, one: int, other: int) -> None:
        if self.live:
            block = self.live[one % len(self.live)]
            stream = STREAMS[other % len(STREAMS)]
            self.allocator.record_stream(block, stream)
            if stream != block.stream:
                self.users[block.address].add(stream)

    def work(self, one: int, _: int) -> None:
        self.streams.work(STREAMS[one % len(STREAMS)])

    def finish(self, one: int, other: int) -> None:
        stream = STREAMS[one % len(STREAMS)]
        left = self.streams.given[stream] - self.streams.reached[stream]
        if left:
            self.streams.finish(stream, self.streams.reached[stream] + 1 + other % left)

    def join(self, _: int, __: int) -> None:
        self.streams.join()

    def empty_cache(self, _: int, __: int) -> None:
        self.allocator.empty_cache()
        self.past = [t for t in self.past if self.segment_of(t.start) is not None]
        for segment in self.allocator.snapshot():
            assert segment["active_size"], "a segment without a live block was kept"

    # -- what must hold ---------------------------------------------------------------------------

    def segment_of(self, address: int) -> int | None:
        """Where the segment of an address starts."""
        found = (low for low, size in self.driver.segments.items() if low <= address < low + size)
        return next(found, None)

    def best_fit(self, size: int) -> int | None:
        """Address of the smallest free block that is large enough, the lowest of equals."""
        fits = [
            (block["size"], block["address"])
            for segment in self.allocator.snapshot()
            for block in segment["blocks"]
            if block["state"] == "inactive" and block["size"] >= size
        ]
        return min(fits)[1] if fits else None

    def could_serve(self, size: int) -> bool:
        """Whether a block could have been had, from free memory or from the driver.

        PyTorch's allocator keeps free memory for its stream and pool, so nobody is to blame there.
        """
        if self.name in ("caching", "quarantine"):
            return False
        return self.best_fit(-(-size // 512) * 512) is not None

    def check(self) -> None:
        """Segments, blocks and statistics agree with one another and with what the program has."""
        stats, segments = self.allocator.stats(), self.allocator.snapshot()
        assert {s["address"]: s["total_size"] for s in segments} == self.driver.segments
        for segment in segments:
            self.check_segment(segment)
        assert stats.allocation.current == len(self.live)
        assert stats.segment.current == len(segments)
        assert stats.allocated_bytes.current == sum(b.size for b in self.live)
        assert stats.allocated_bytes.current == sum(s["allocated_size"] for s in segments)
        assert stats.active_bytes.current == sum(s["active_size"] for s in segments)
        assert stats.requested_bytes.current == sum(s["requested_size"] for s in segments)
        assert stats.reserved_bytes.current == sum(s["total_size"] for s in segments)
        assert stats.reserved_bytes.current <= self.allocator.capacity
        split = [
            block["size"]
            for s in segments
            if len(s["blocks"]) > 1
            for block in s["blocks"]
            if block["state"] == "inactive"
        ]
        assert stats.inactive_split.current == len(split)
        assert stats.inactive_split_bytes.current == sum(split)
        for figure in stats.figures().values():
            assert figure.current == figure.allocated - figure.freed <= figure.peak

    def check_segment(self, segment: SegmentInfo) -> None:
        """Blocks lie end to end, and free neighbours are one, where nothing keeps them apart."""
        address, previous = segment["address"], ""
        for block in segment["blocks"]:
            assert block["address"] == address
            if previous == block["state"] == "inactive":
                assert self.apart(address)
            address, previous = address + block["size"], block["state"]
        assert address == segment["address"] + segment["total_size"]

    def apart(self, address: int) -> bool:
        """Whether two free neighbours that meet at an address may be two.

        For `frontier`, where the allocator need not know yet that the device has passed both; for
        stream-ordered memory, where they were given up on different streams.
        """
        if self.name == "bfc:frontier":
            return any(address in (t.start, t.end) for t in self.past)
        return self.name == "stream-ordered" and bool(self.past)
