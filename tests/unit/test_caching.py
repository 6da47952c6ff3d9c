"""The caching allocator decides as PyTorch's does (rules M1 to M3, G3)."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamsan.allocator import Block, CachingAllocator, OutOfMemory, SegmentInfo

MIB = 1 << 20
GIB = 1 << 30


class FakeDriver:
    """Segments at ever higher addresses; checks that whole segments come back."""

    def __init__(self, capacity: int = 64 * GIB) -> None:
        self.left = capacity
        self.next = 1 << 30
        self.segments: dict[int, int] = {}

    def reserve(self, size: int) -> int | None:
        if size > self.left:
            return None
        self.left -= size
        address, self.next = self.next, self.next + size
        self.segments[address] = size
        return address

    def release(self, address: int, size: int) -> None:
        assert self.segments.pop(address) == size
        self.left += size


class FakeEvents:
    """Streams that come as far as the test says; a token is (stream, position)."""

    def __init__(self) -> None:
        self.recorded: dict[int, int] = defaultdict(int)
        self.reached: dict[int, int] = defaultdict(int)

    def record(self, stream: int) -> tuple[int, int]:
        self.recorded[stream] += 1
        return stream, self.recorded[stream]

    def done(self, token: tuple[int, int]) -> bool:
        return self.reached[token[0]] >= token[1]

    def wait(self, token: tuple[int, int]) -> None:
        self.reached[token[0]] = max(self.reached[token[0]], token[1])

    def finish(self, stream: int) -> None:
        self.reached[stream] = self.recorded[stream]


def make(capacity: int = 64 * GIB) -> tuple[CachingAllocator, FakeDriver, FakeEvents]:
    driver, events = FakeDriver(capacity), FakeEvents()
    return CachingAllocator(driver, events, capacity), driver, events


@pytest.mark.parametrize(
    ("requested", "rounded", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of 1 MiB is not split off
        (19 * MIB, 20 * MIB, 20 * MIB),
        (19 * MIB - 512, 19 * MIB - 512, 20 * MIB),
    ],
)
def test_sizes_of_blocks_and_segments(requested: int, rounded: int, segment: int) -> None:
    allocator, driver, _ = make()
    block = allocator.allocate(requested, stream=0)
    assert (block.size, block.requested) == (rounded, requested)
    assert list(driver.segments.values()) == [segment]


def test_large_block_keeps_a_remainder_up_to_one_mebibyte() -> None:
    allocator, _, _ = make()
    allocator.free(allocator.allocate(12 * MIB, 0))
    assert allocator.allocate(11 * MIB, 0).size == 12 * MIB
    allocator.allocate(8 * MIB, 0)
    rest = allocator.allocate(11 * MIB + 512, 0)
    assert rest.size == 12 * MIB  # the remainder of the 20 MiB segment, less than 1 MiB too big


def test_freed_block_goes_to_its_stream_at_once_and_to_no_other() -> None:
    allocator, _, _ = make()
    block = allocator.allocate(4096, stream=1)
    address = block.address
    allocator.free(block)
    assert allocator.allocate(4096, stream=2).address != address
    assert allocator.allocate(4096, stream=1).address == address


def test_best_fit_and_of_equals_the_lowest_address() -> None:
    allocator, _, _ = make()
    blocks = [allocator.allocate(size, 0) for size in (2048, 512, 1024, 512, 1024, 512)]
    third, fifth = blocks[2].address, blocks[4].address
    for index in (4, 0, 2):
        allocator.free(blocks[index])
    assert allocator.allocate(600, 0).address == third
    assert allocator.allocate(600, 0).address == fifth


def test_recorded_block_waits_for_every_stream_recorded() -> None:
    allocator, _, events = make()
    block = allocator.allocate(4096, 0)
    address = block.address
    for stream in (0, 1, 2, 1):  # the owner itself needs no event
        allocator.record_stream(block, stream)
    allocator.free(block)
    assert dict(events.recorded) == {1: 1, 2: 1}
    assert allocator.allocate(4096, 0).address != address
    events.finish(1)
    assert allocator.allocate(4096, 0).address != address
    events.finish(2)
    assert allocator.allocate(4096, 0).address == address


def test_shortage_waits_for_events_and_empties_the_cache() -> None:
    allocator, driver, _ = make(capacity=32 * MIB)
    block = allocator.allocate(20 * MIB, 0)
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert allocator.allocate(30 * MIB, 0).size == 30 * MIB
    assert list(driver.segments.values()) == [30 * MIB]
    assert allocator.stats().num_alloc_retries == 1


def test_out_of_memory_tells_the_figures_and_leaves_the_allocator_usable() -> None:
    allocator, _, _ = make(capacity=32 * MIB)
    allocator.allocate(3000, 0)
    with pytest.raises(OutOfMemory, match="tried to allocate 33554432 bytes") as caught:
        allocator.allocate(32 * MIB, 0)
    error = caught.value
    assert (error.requested, error.capacity) == (32 * MIB, 32 * MIB)
    assert (error.allocated, error.reserved) == (3072, 2 * MIB)
    assert allocator.stats().num_ooms == 1
    assert allocator.allocate(30 * MIB, 0).size == 30 * MIB


def test_private_pool_keeps_its_segments_until_released() -> None:
    allocator, driver, _ = make()
    common = allocator.allocate(4096, 0)
    private = allocator.allocate(4096, 0, pool=7)
    assert len(driver.segments) == 2
    allocator.retain_pool(7)
    allocator.free(common)
    allocator.free(private)
    allocator.release_pool(7)
    allocator.empty_cache()
    assert [info["segment_pool_id"] for info in allocator.snapshot()] == [(0, 7)]
    allocator.release_pool(7)
    allocator.empty_cache()
    assert not driver.segments


def test_no_event_is_touched_during_a_capture() -> None:
    allocator, _, events = make()
    block = allocator.allocate(4096, 0)
    address = block.address
    allocator.record_stream(block, 1)
    allocator.begin_capture()
    allocator.free(block)
    assert not events.recorded
    allocator.end_capture()
    assert dict(events.recorded) == {1: 1}
    events.finish(1)
    assert allocator.allocate(4096, 0).address == address


def test_wrong_use_is_refused() -> None:
    allocator, _, _ = make()
    block = allocator.allocate(1, 0)
    allocator.free(block)
    with pytest.raises(ValueError, match="not a live block"):
        allocator.free(block)
    with pytest.raises(ValueError, match="not a live block"):
        allocator.record_stream(block, 1)
    with pytest.raises(ValueError, match="cannot allocate 0 bytes"):
        allocator.allocate(0, 0)


def test_peaks_and_their_reset() -> None:
    allocator, _, _ = make()
    allocator.free(allocator.allocate(4096, 0))
    allocator.allocate(512, 0)
    assert allocator.stats().allocated_bytes.peak == 4096
    allocator.reset_peak()
    flat = allocator.stats().flat()
    assert flat["allocated_bytes.all.peak"] == flat["allocated_bytes.all.current"] == 512
    assert flat["allocated_bytes.all.allocated"] == 4608
    assert flat["reserved_bytes.all.current"] == 2 * MIB


class Machine(RuleBasedStateMachine):
    """Random programs against what must hold of any allocator and of the statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator, self.driver, self.events = make(capacity=128 * MIB)
        self.live: list[Block] = []
        self.recorded: dict[int, set[int]] = {}
        self.held: list[tuple[int, int, list[tuple[int, int]]]] = []

    @rule(
        size=st.one_of(st.integers(1, 5000), st.integers(MIB - 600, 40 * MIB)),
        stream=st.integers(0, 2),
        pool=st.sampled_from([0, 0, 0, 5]),
    )
    def allocate(self, size: int, stream: int, pool: int) -> None:
        best = self.best_fit(size, stream, pool)
        reserved = len(self.driver.segments)
        try:
            block = self.allocator.allocate(size, stream, pool)
        except OutOfMemory:
            return
        assert block.size >= size
        assert (block.stream, block.pool) == (stream, pool)
        if best is not None and len(self.driver.segments) == reserved and not self.held:
            assert block.address == best
        for address, length, tokens in self.held:
            if address < block.address + block.size and block.address < address + length:
                assert all(self.events.done(token) for token in tokens)
        self.live.append(block)

    def best_fit(self, size: int, stream: int, pool: int) -> int | None:
        segments = self.allocator.snapshot()
        if any(b["state"] == "active_pending_free" for s in segments for b in s["blocks"]):
            return None  # the allocation may first see such a block done, and take it
        rounded = -(-size // 512) * 512
        kind = "small" if rounded <= MIB else "large"
        fits = [
            (block["size"], block["address"])
            for segment in segments
            if segment["stream"] == stream and segment["segment_pool_id"] == (0, pool)
            if segment["segment_type"] == kind
            for block in segment["blocks"]
            if block["state"] == "inactive" and block["size"] >= rounded
        ]
        return min(fits)[1] if fits else None

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        users = self.recorded.pop(block.address, set())
        address, size = block.address, block.size
        self.allocator.free(block)
        if users:
            tokens = [(stream, self.events.recorded[stream]) for stream in users]
            self.held.append((address, size, tokens))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), stream=st.integers(0, 2))
    def record(self, data: st.DataObject, stream: int) -> None:
        block = data.draw(st.sampled_from(self.live))
        self.allocator.record_stream(block, stream)
        if stream != block.stream:
            self.recorded.setdefault(block.address, set()).add(stream)

    @rule(stream=st.integers(0, 2))
    def finish(self, stream: int) -> None:
        self.events.finish(stream)
        self.held = [h for h in self.held if not all(self.events.done(t) for t in h[2])]

    @rule()
    def empty_cache(self) -> None:
        self.allocator.empty_cache()
        assert all(
            segment["active_size"] or segment["segment_pool_id"] != (0, 0)
            for segment in self.allocator.snapshot()
        )

    @invariant()
    def segments_hold_together(self) -> None:
        segments = self.allocator.snapshot()
        assert {s["address"]: s["total_size"] for s in segments} == self.driver.segments
        for segment in segments:
            check_segment(segment)

    @invariant()
    def statistics_add_up(self) -> None:
        stats, segments = self.allocator.stats(), self.allocator.snapshot()
        assert stats.allocation.current == len(self.live)
        assert stats.segment.current == len(segments)
        assert stats.allocated_bytes.current == sum(b.size for b in self.live)
        assert stats.allocated_bytes.current == sum(s["allocated_size"] for s in segments)
        assert stats.active_bytes.current == sum(s["active_size"] for s in segments)
        assert stats.requested_bytes.current == sum(s["requested_size"] for s in segments)
        assert stats.reserved_bytes.current == sum(s["total_size"] for s in segments)
        for figure in stats.figures().values():
            assert figure.current == figure.allocated - figure.freed <= figure.peak


def check_segment(segment: SegmentInfo) -> None:
    """Blocks lie end to end, and no two free ones are neighbours."""
    address = segment["address"]
    previous = ""
    for block in segment["blocks"]:
        assert block["address"] == address
        assert not previous == block["state"] == "inactive"
        address, previous = address + block["size"], block["state"]
    assert address == segment["address"] + segment["total_size"]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
