"""Every allocator of device memory against a naive model (rules M1 to M4, M6)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.allocator import (
    DEFAULT,
    NAMES,
    BfcAllocator,
    CaptureRefused,
    OutOfMemory,
    StreamOrderedAllocator,
    make_allocator,
    parse_allocator,
)
from streamsan.errors import UsageError
from tests.unit.arena_model import MIB, OPERATIONS, FakeDriver, FakeStreams, World

ARENAS = tuple(name for name in NAMES if name != DEFAULT)
BFC = tuple(name for name in NAMES if name.startswith("bfc:"))

steps = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 1 << 12), st.integers(0, 1 << 12)),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("name", NAMES)
def test_random_programs(name: str) -> None:
    """``python -m tests.unit.fuzz_arenas`` does the same for as long as one likes."""

    @given(steps)
    @settings(max_examples=60)
    def run(program: list[tuple[str, int, int]]) -> None:
        World(name).run(program)

    run()


def make(name: str, capacity: int = 64 * MIB) -> tuple[BfcAllocator, FakeDriver, FakeStreams]:
    streams = FakeStreams()
    driver = FakeDriver(capacity, streams)
    allocator = make_allocator(name, driver, streams, capacity)
    assert isinstance(allocator, BfcAllocator)
    return allocator, driver, streams


# -- the arena ------------------------------------------------------------------------------------


def test_sizes_are_multiples_of_256_bytes() -> None:
    allocator, _, _ = make("bfc:async")
    assert [allocator.allocate(n, 0).size for n in (1, 256, 257)] == [256, 256, 512]


def test_regions_double_up_to_the_limit() -> None:
    allocator, driver, _ = make("bfc:async", 20 * MIB)
    for _ in range(20):
        allocator.allocate(MIB, 0)
    assert list(driver.segments.values()) == [2 * MIB, 4 * MIB, 8 * MIB, 6 * MIB]
    with pytest.raises(OutOfMemory, match="tried to allocate 1 bytes"):
        allocator.allocate(1, 0)


def test_region_is_as_large_as_a_large_request_needs() -> None:
    allocator, driver, _ = make("bfc:async")
    allocator.allocate(9 * MIB, 0)
    allocator.allocate(9 * MIB, 0)
    assert list(driver.segments.values()) == [16 * MIB, 16 * MIB]


def test_region_shrinks_to_what_the_driver_has() -> None:
    allocator, driver, _ = make("bfc:async")
    driver.left = 5 * MIB
    allocator.allocate(2 * MIB, 0)
    allocator.allocate(2 * MIB, 0)
    first, second = driver.segments.values()
    assert first == 2 * MIB
    assert 2 * MIB <= second <= 3 * MIB


def test_chunk_less_than_twice_the_request_stays_whole() -> None:
    allocator, _, _ = make("bfc:async")
    chunk = allocator.allocate(4096, 0)
    allocator.allocate(256, 0)
    allocator.free(chunk)
    assert allocator.allocate(2049, 0).size == 4096
    allocator.free(chunk)
    assert allocator.allocate(2048, 0).size == 2048


def test_rest_of_128_mebibytes_is_split_off() -> None:
    allocator, _, _ = make("bfc:async", 1024 * MIB)
    allocator.free(allocator.allocate(512 * MIB, 0))
    assert allocator.allocate(400 * MIB, 0).size == 512 * MIB
    allocator, _, _ = make("bfc:async", 1024 * MIB)
    allocator.free(allocator.allocate(512 * MIB, 0))
    assert allocator.allocate(384 * MIB, 0).size == 384 * MIB


def test_histogram_counts_chunks_by_bin() -> None:
    allocator, _, _ = make("bfc:async")
    allocator.allocate(256, 0)
    allocator.allocate(700, 0)
    bins = allocator.histogram()
    assert [b["size"] for b in bins[:3]] == [256, 512, 1024]
    assert [b["live_chunks"] for b in bins[:3]] == [1, 1, 0]
    assert bins[1]["live_bytes"] == 768
    assert sum(b["free_chunks"] for b in bins) == 1
    assert sum(b["free_bytes"] for b in bins) == 2 * MIB - 1024


# -- the policies ---------------------------------------------------------------------------------


def test_async_gives_a_chunk_to_another_stream_at_once() -> None:
    allocator, _, streams = make("bfc:async")
    chunk = allocator.allocate(4096, 0)
    allocator.record_stream(chunk, 2)
    streams.work(0)
    address = chunk.address
    allocator.free(chunk)
    assert allocator.allocate(4096, 1).address == address
    assert streams.all() == [0]
    assert streams.before(1) == {}


def test_host_sync_waits_at_the_free() -> None:
    allocator, _, streams = make("bfc:host-sync")
    chunk = allocator.allocate(4096, 0)
    streams.work(2)
    allocator.free(chunk)
    assert streams.all() == []


def test_frontier_keeps_a_chunk_for_its_owner_until_the_device_has_passed() -> None:
    allocator, _, streams = make("bfc:frontier")
    chunk = allocator.allocate(2 * MIB, 0)
    address = chunk.address
    streams.work(2)
    allocator.free(chunk)
    other = allocator.allocate(2 * MIB, 1)
    assert other.address != address
    assert allocator.allocate(2 * MIB, 0).address == address
    allocator.free(allocator.allocate(4 * MIB, 1))
    streams.join()
    assert allocator.allocate(4 * MIB, 2).address != address


def test_frontier_holds_a_recorded_chunk_back_from_its_owner_too() -> None:
    allocator, _, streams = make("bfc:frontier")
    chunk = allocator.allocate(2 * MIB, 0)
    address = chunk.address
    allocator.record_stream(chunk, 1)
    streams.work(1)
    allocator.free(chunk)
    assert allocator.allocate(2 * MIB, 0).address != address
    streams.join()
    assert allocator.allocate(2 * MIB, 0).address == address


def test_frontier_merged_chunks_take_the_later_stamp() -> None:
    allocator, _, streams = make("bfc:frontier")
    first, second = allocator.allocate(MIB, 0), allocator.allocate(MIB, 0)
    address = first.address
    _, number = streams.work(0)
    allocator.free(first)
    allocator.allocate(MIB, 1)  # draws a frontier, and gets other memory
    streams.work(0)
    allocator.free(second)
    streams.finish(0, number)
    foreign = [allocator.allocate(MIB, 1).address for _ in range(4)]
    assert not {address, address + MIB} & set(foreign)


def test_frontier_waits_when_memory_is_short() -> None:
    allocator, _, streams = make("bfc:frontier", 2 * MIB)
    chunk = allocator.allocate(2 * MIB, 0)
    streams.work(0)
    allocator.free(chunk)
    assert allocator.allocate(2 * MIB, 1).size == 2 * MIB
    assert streams.all() == []
    assert allocator.stats().num_alloc_retries == 1


def test_event_orders_the_next_owner_after_all_users() -> None:
    allocator, _, streams = make("bfc:event")
    chunk = allocator.allocate(2 * MIB, 0)
    allocator.record_stream(chunk, 2)
    streams.work(0)
    streams.work(2)
    allocator.free(chunk)
    streams.work(2)
    assert allocator.allocate(2 * MIB, 1).address == chunk.address
    assert streams.before(1) == {0: 1, 2: 1}
    assert streams.all() == [0, 1, 2]  # nobody was waited for


def test_event_survives_splitting_and_merging() -> None:
    allocator, _, streams = make("bfc:event")
    chunks = [allocator.allocate(MIB, stream) for stream in (0, 1)]
    for stream in (0, 1):
        streams.work(stream)
    for chunk in chunks:
        allocator.free(chunk)
    allocator.allocate(MIB, 2)
    assert streams.before(2) == {0: 1, 1: 1}  # the two were merged
    streams.next[2].clear()
    allocator.allocate(MIB, 2)
    assert streams.before(2) == {0: 1, 1: 1}


@pytest.mark.parametrize("name", BFC)
def test_name_has_the_policy(name: str) -> None:
    allocator, _, _ = make(name)
    assert allocator.name == name
    assert allocator.watches_uses == (name == "bfc:event")


# -- the others -----------------------------------------------------------------------------------


def test_stream_ordered_prefers_its_own_memory_to_a_dependency() -> None:
    streams = FakeStreams()
    allocator = make_allocator("stream-ordered", FakeDriver(64 * MIB, streams), streams, 64 * MIB)
    foreign, between, own = (allocator.allocate(n, s) for n, s in ((1024, 0), (512, 0), (4096, 1)))
    allocator.allocate(512, 0)
    streams.work(0)
    addresses = foreign.address, own.address
    allocator.free(foreign)
    allocator.free(own)
    assert allocator.allocate(1024, 1).address == addresses[1]
    assert streams.before(1) == {}
    assert allocator.allocate(1024, 2).address == addresses[0]
    assert streams.before(2) == {0: 1}
    assert between.allocated


def test_stream_ordered_pool_is_trimmed() -> None:
    streams = FakeStreams()
    driver = FakeDriver(128 * MIB, streams)
    allocator = make_allocator("stream-ordered", driver, streams, 128 * MIB)
    assert isinstance(allocator, StreamOrderedAllocator)
    blocks = [allocator.allocate(30 * MIB, 0) for _ in range(3)]
    for block in blocks:
        allocator.free(block)
    assert sum(driver.segments.values()) == 96 * MIB
    allocator.trim(64 * MIB)
    assert sum(driver.segments.values()) == 64 * MIB
    allocator.trim(0)
    assert driver.segments == {}


def test_quarantine_holds_a_block_back_until_its_poison_is_over() -> None:
    streams, size = FakeStreams(), 10 * MIB  # a segment for each block: there is no other free one
    allocator = make_allocator("quarantine", FakeDriver(64 * MIB, streams), streams, 64 * MIB)
    block = allocator.allocate(size, 0)
    address = block.address
    streams.work(1)
    allocator.free(block)
    assert [entry[:3] for entry in streams.fills] == [(address, size, (0, 1))]
    assert allocator.allocate(size, 0).address != address
    streams.finish(0, 1)
    assert allocator.allocate(size, 0).address != address  # stream 1 may still use it
    streams.finish(1, 1)
    assert allocator.allocate(size, 0).address == address


# -- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARENAS)
def test_captures_are_refused_in_one_sentence(name: str) -> None:
    streams = FakeStreams()
    allocator = make_allocator(name, FakeDriver(64 * MIB, streams), streams, 64 * MIB)
    with pytest.raises(CaptureRefused, match=rf"the {name} allocator cannot serve a graph capture"):
        allocator.retain_pool(1)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_use_is_refused(name: str) -> None:
    streams = FakeStreams()
    allocator = make_allocator(name, FakeDriver(64 * MIB, streams), streams, 64 * MIB)
    block = allocator.allocate(1, 0)
    allocator.free(block)
    with pytest.raises(ValueError, match="not a live block"):
        allocator.free(block)
    with pytest.raises(ValueError, match="not a live block"):
        allocator.record_stream(block, 1)
    with pytest.raises(ValueError, match="cannot allocate 0 bytes"):
        allocator.allocate(0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_all_memory_can_be_had_again_after_a_shortage(name: str) -> None:
    world = World(name, 64 * MIB)
    with pytest.raises(OutOfMemory):
        world.allocator.allocate(65 * MIB, 0)
    blocks = [world.allocator.allocate(5 * MIB, n % 3) for n in range(8)]
    for block in blocks:
        world.streams.work(block.stream)
        world.allocator.free(block)
    assert world.allocator.allocate(60 * MIB, 1).size >= 60 * MIB
    assert world.allocator.stats().num_ooms == 1


@pytest.mark.parametrize("name", NAMES)
def test_peaks_and_sums_start_over(name: str) -> None:
    allocator = World(name).allocator
    block = allocator.allocate(4096, 0)
    allocator.free(block)
    allocator.reset_peak()
    allocator.reset_accumulated()
    figure = allocator.stats().allocated_bytes
    assert (figure.peak, figure.allocated, figure.freed) == (0, 0, 0)


def test_names() -> None:
    assert parse_allocator("bfc") == "bfc:async"
    assert [parse_allocator(name) for name in NAMES] == list(NAMES)
    with pytest.raises(UsageError, match="there is no allocator 'bfc:now': choose from caching, "):
        parse_allocator("bfc:now")
