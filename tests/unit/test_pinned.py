"""The pinned host allocator returns blocks as PyTorch's does (rule M5)."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.allocator import Block, OutOfMemory, PinnedAllocator


class Driver:
    """Segments at ever higher addresses."""

    def __init__(self) -> None:
        self.next = 4096
        self.segments: dict[int, int] = {}

    def reserve(self, size: int) -> int | None:
        address, self.next = self.next, self.next + size
        self.segments[address] = size
        return address

    def release(self, address: int, size: int) -> None:
        assert self.segments.pop(address) == size


class Events:
    """Tokens are [stream, done]; streams finish when the test says so."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[list[bool]]] = defaultdict(list)

    def record(self, stream: int) -> list[bool]:
        self.tokens[stream].append([False])
        return self.tokens[stream][-1]

    def done(self, token: list[bool]) -> bool:
        return token[0]

    def wait(self, token: list[bool]) -> None:
        raise AssertionError(f"the pinned allocator never waits, but did for {token}")

    def finish(self, stream: int) -> None:
        for token in self.tokens[stream]:
            token[0] = True


def make(capacity: int = 1 << 30) -> tuple[PinnedAllocator, Driver, Events]:
    driver, events = Driver(), Events()
    return PinnedAllocator(driver, events, capacity), driver, events


@pytest.mark.parametrize(("size", "rounded"), [(1, 1), (3, 4), (4096, 4096), (4097, 8192)])
def test_sizes_are_powers_of_two(size: int, rounded: int) -> None:
    allocator, driver, _ = make()
    block = allocator.allocate(size)
    assert block.size == rounded
    assert driver.segments == {block.address: rounded}


def test_last_freed_is_reused_first_and_only_within_its_size() -> None:
    allocator, _, _ = make()
    first, second = allocator.allocate(100), allocator.allocate(100)
    allocator.free(first)
    allocator.free(second)
    assert allocator.allocate(300) not in (first, second)
    assert allocator.allocate(65) is second
    assert allocator.allocate(128) is first


def test_used_block_waits_for_all_its_streams() -> None:
    allocator, _, events = make()
    block = allocator.allocate(64)
    for stream in (0, 3, 0):
        allocator.record_stream(block, stream)
    allocator.free(block)
    assert sorted(events.tokens) == [0, 3]
    assert allocator.allocate(64) is not block
    events.finish(0)
    assert allocator.allocate(64) is not block
    events.finish(3)
    assert allocator.allocate(64) is block


def test_unfinished_event_holds_back_the_blocks_behind_it() -> None:
    allocator, _, events = make()
    slow, fast = allocator.allocate(64), allocator.allocate(64)
    allocator.record_stream(slow, 1)
    allocator.record_stream(fast, 2)
    allocator.free(slow)
    allocator.free(fast)
    events.finish(2)
    assert allocator.allocate(64) not in (slow, fast)
    events.finish(1)
    assert allocator.allocate(64) is fast


def test_empty_cache_leaves_blocks_with_unfinished_events() -> None:
    allocator, driver, events = make()
    used, unused = allocator.allocate(64), allocator.allocate(64)
    allocator.record_stream(used, 1)
    allocator.free(used)
    allocator.free(unused)
    allocator.empty_cache()
    assert driver.segments == {used.address: 64}
    assert [s["blocks"][0]["state"] for s in allocator.snapshot()] == ["active_pending_free"]
    events.finish(1)
    allocator.empty_cache()
    assert not driver.segments
    assert allocator.stats().reserved_bytes.current == 0


def test_out_of_memory_and_wrong_use() -> None:
    allocator, _, _ = make(capacity=100)
    block = allocator.allocate(60)
    with pytest.raises(OutOfMemory, match="64 are reserved"):
        allocator.allocate(60)
    allocator.free(block)
    with pytest.raises(ValueError, match="not a live block"):
        allocator.free(block)
    with pytest.raises(ValueError, match="not a live block"):
        allocator.record_stream(block, 0)
    with pytest.raises(ValueError, match="cannot allocate 0 bytes"):
        allocator.allocate(0)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["allocate", "free", "record", "finish"]),
            st.integers(0, 3),
            st.integers(1, 300),
        ),
        max_size=60,
    )
)
def test_random_programs(steps: list[tuple[str, int, int]]) -> None:
    allocator, driver, events = make()
    live: list[Block] = []
    used: dict[int, set[int]] = defaultdict(set)
    outstanding: dict[int, list[list[bool]]] = {}
    for action, stream, number in steps:
        if action == "allocate":
            block = allocator.allocate(number)
            assert block not in live
            assert all(token[0] for token in outstanding.pop(block.address, []))
            live.append(block)
        elif action == "finish":
            events.finish(stream)
        elif live and action == "record":
            block = live[number % len(live)]
            allocator.record_stream(block, stream)
            used[block.address].add(stream)
        elif live:
            block = live.pop(number % len(live))
            allocator.free(block)
            streams = used.pop(block.address, set())
            outstanding[block.address] = [events.tokens[s][-1] for s in streams]
        stats = allocator.stats()
        assert stats.allocated_bytes.current == sum(block.size for block in live)
        assert stats.allocation.current == len(live)
        assert stats.reserved_bytes.current == sum(driver.segments.values())
        assert stats.active_bytes.current == sum(s["active_size"] for s in allocator.snapshot())
