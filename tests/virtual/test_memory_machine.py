"""The machine's address ranges, and frees that come at any moment."""

from __future__ import annotations

import ctypes
import random
import threading

import pytest

from streamsan.allocator import OutOfMemory
from streamsan.virtual.memory import NOWHERE, PAGE, PINNED, Memory
from streamsan.virtual.monitor import Monitor
from tests.virtual.machine import Machine

MIB = 1 << 20


def test_every_address_has_its_owner() -> None:
    memory = Memory(3, 64 * MIB, 32 * MIB)
    for index, device in enumerate(memory.devices):
        address = device.reserve(10 * MIB)
        assert address is not None
        assert memory.owner(address) == memory.owner(address + 10 * MIB - 1) == index
    pinned = memory.pinned.reserve(MIB)
    assert pinned is not None
    assert memory.owner(pinned) == PINNED
    assert memory.owner(memory.base - 1) == memory.owner(memory.end) == NOWHERE


def test_segments_never_overlap_and_fit_as_long_as_bytes_are_free() -> None:
    memory = Memory(1, 64 * MIB, 2 * MIB).devices[0]
    chance, held = random.Random(1), dict[int, int]()
    for _ in range(2000):
        if held and chance.random() < 0.5:
            address = chance.choice(list(held))
            memory.release(address, held.pop(address))
            continue
        size = chance.choice((2, 4, 6, 12)) * MIB
        room = memory.free
        found = memory.reserve(size)
        if found is None:
            assert size > room
            continue
        assert all(found + size <= a or a + s <= found for a, s in held.items())
        held[found] = size
    assert memory.free == 64 * MIB - PAGE - sum(held.values())


def test_fresh_memory_is_nan_and_released_memory_is_gone() -> None:
    memory = Memory(1, 16 * MIB, 2 * MIB).devices[0]
    address = memory.reserve(2 * MIB)
    assert address is not None
    assert ctypes.string_at(address, 8) == b"\xff" * 8
    memory.release(address, 2 * MIB)
    assert ctypes.string_at(address, 8) == b"\0" * 8
    assert memory.reserve(2 * MIB) == address
    assert ctypes.string_at(address + 2 * MIB - 8, 8) == b"\xff" * 8


def test_the_whole_of_a_device_can_be_allocated_and_no_more() -> None:
    gpu = Machine(memory=32 * MIB)
    stream = gpu.devices[0].default
    free = gpu.devices[0].segments.memory.free
    live = gpu.allocate(0, free, stream)
    with pytest.raises(OutOfMemory):
        gpu.allocate(0, 1, stream)
    gpu.drop(live)
    other = gpu.new_stream(0)
    assert gpu.allocate(0, free - 4 * MIB, other).block.stream == id(other)
    stats = gpu.devices[0].allocator.stats()
    assert (stats.num_alloc_retries, stats.num_ooms) == (2, 1)


def test_memory_is_given_back_only_after_the_work_that_may_use_it() -> None:
    gpu = Machine()
    side = gpu.new_stream(0)
    live = gpu.allocate(0, 12 * MIB, side)
    gpu.put(side, "reads the block")
    gpu.drop(live)
    gpu.empty_cache()
    assert gpu.ran == ["reads the block"]
    gpu.put(side, "later")
    gpu.empty_cache()  # nothing to give back, so nothing is joined
    assert gpu.ran == ["reads the block"]


def test_a_free_in_the_middle_of_an_allocation_waits_for_its_end() -> None:
    gpu = Machine()
    stream = gpu.devices[0].default
    live = gpu.allocate(0, 1024, stream)
    with gpu.monitor:
        gpu.drop(live)
        assert gpu.devices[0].allocator.stats().allocation.current == 1
    assert gpu.devices[0].allocator.stats().allocation.current == 0


def test_a_finalizer_does_not_wait_for_a_thread_that_holds_the_lock() -> None:
    monitor, done = Monitor(), []
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with monitor:
            held.set()
            assert leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    monitor.later(lambda: done.append("freed"))  # would wait for ever if it took the lock
    assert done == []
    leave.set()
    thread.join()
    with monitor:
        assert done == ["freed"]


def test_threads_that_allocate_and_drop_add_up() -> None:
    gpu = Machine(memory=256 * MIB)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        stream = gpu.new_stream(0)
        held = []
        for _ in range(400):
            with gpu.monitor:
                held.append(gpu.allocate(0, chance.randrange(1, 3 * MIB >> 3), stream))
            if chance.random() < 0.6:
                gpu.drop(held.pop(chance.randrange(len(held))))
        for live in held:
            gpu.drop(live)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with gpu.monitor:
        stats = gpu.devices[0].allocator.stats()
    assert stats.allocation.current == stats.allocated_bytes.current == 0
    assert stats.allocation.allocated == stats.allocation.freed == 2400
    assert gpu.live == {}
