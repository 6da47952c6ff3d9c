"""What the allocators do on the virtual machine, and what it reports of that (rules M4, M6)."""

from __future__ import annotations

import ctypes
import threading

import pytest

from streamsan.allocator import NAMES
from streamsan.model import records as r
from streamsan.virtual.devices import Live
from streamsan.virtual.streams import Stream
from tests.virtual.machine import Machine

KIB = 1 << 10


def machine(allocator: str, schedule: str = "late") -> tuple[Machine, Stream, Stream]:
    """A machine, its default stream and another one."""
    gpu = Machine(schedule, allocator=allocator)
    return gpu, gpu.devices[0].default, gpu.named("side")


def use(gpu: Machine, stream: Stream, live: Live, name: str) -> None:
    """Enqueue work on a block, and tell of it as an operator does."""
    gpu.put(stream, name)
    access = r.Access(live.space, live.block.address, live.block.requested, (), (), 1, "x")
    gpu.used(stream, (access,))


def kinds(gpu: Machine, since: int = 0) -> list[str]:
    return [type(record).__name__ for record in gpu.told[since:]]


@pytest.mark.parametrize("name", NAMES)
def test_the_report_names_allocator_and_policy(name: str) -> None:
    gpu, default, _ = machine(name)
    gpu.allocate(0, 512, default)
    (alloc,) = (x for x in gpu.told if isinstance(x, r.Alloc))
    assert alloc.allocator == name


def test_m6_async_hands_a_chunk_to_another_stream_before_its_user_has_run() -> None:
    gpu, default, side = machine("bfc:async")
    live = gpu.allocate(0, 4 * KIB, default)
    use(gpu, default, live, "reader")
    gpu.drop(live)
    assert gpu.allocate(0, 4 * KIB, side).block.address == live.block.address
    assert gpu.ran == []
    assert kinds(gpu)[-3:] == ["Alloc", "Free", "Alloc"]


def test_m6_host_sync_runs_the_device_before_the_free() -> None:
    gpu, default, side = machine("bfc:host-sync")
    live = gpu.allocate(0, 4 * KIB, default)
    use(gpu, default, live, "reader")
    gpu.put(side, "other")
    gpu.drop(live)
    assert sorted(gpu.ran) == ["other", "reader"]
    sync, free = gpu.told[-2:]
    assert isinstance(sync, r.DeviceSync)
    assert sync.cause == "M6"
    assert isinstance(free, r.Free)


def test_m6_frontier_makes_another_stream_wait_for_nothing_and_take_other_memory() -> None:
    gpu, default, side = machine("bfc:frontier")
    live = gpu.allocate(0, 2048 * KIB, default)
    use(gpu, default, live, "reader")
    gpu.drop(live)
    address = live.block.address
    assert gpu.allocate(0, 2048 * KIB, side).block.address != address
    assert gpu.ran == []
    gpu.sync_stream(default)
    assert gpu.allocate(0, 2048 * KIB, side).block.address == address


def test_m6_event_makes_the_next_owners_stream_wait_for_the_users() -> None:
    gpu, default, side = machine("bfc:event")
    third = gpu.named("third")
    live = gpu.allocate(0, 4 * KIB, default)
    use(gpu, side, live, "reader")
    before = len(gpu.told)
    gpu.drop(live)
    records = [x for x in gpu.told[before:] if isinstance(x, r.EventRecord)]
    assert len(records) == 2  # of the owner and of the stream that was never recorded
    before = len(gpu.told)
    assert gpu.allocate(0, 4 * KIB, third).block.address == live.block.address
    waits = [x for x in gpu.told[before:] if isinstance(x, r.EventWait)]
    assert {x.event for x in waits} == {x.event for x in records}
    gpu.put(third, "writer")
    gpu.sync_stream(third)
    assert gpu.ran == ["reader", "writer"]


def test_m6_events_are_destroyed_when_nothing_needs_them_any_more() -> None:
    gpu, default, _ = machine("bfc:event", "program")
    for _ in range(20):
        gpu.drop(gpu.allocate(0, 4 * KIB, default))
    recorded = {x.event for x in gpu.told if isinstance(x, r.EventRecord)}
    destroyed = {x.event for x in gpu.told if isinstance(x, r.EventDestroy)}
    assert len(recorded) == 20
    assert len(recorded - destroyed) <= 1


def test_m4_the_driver_orders_another_stream_after_the_free() -> None:
    gpu, default, side = machine("stream-ordered")
    live = gpu.allocate(0, 4 * KIB, default)
    gpu.put(default, "reader")
    gpu.drop(live)
    assert gpu.allocate(0, 4 * KIB, side).block.address == live.block.address
    gpu.put(side, "writer")
    gpu.sync_stream(side)
    assert gpu.ran == ["reader", "writer"]
    assert "EventWait" not in kinds(gpu)


def test_quarantine_poisons_behind_the_owners_work() -> None:
    gpu, default, _ = machine("quarantine")
    size = 10 << 20  # a segment for each block: there is no other free one
    live = gpu.allocate(0, size, default)
    address = live.block.address

    def write() -> None:
        ctypes.memset(address, 0, size)

    gpu.submit(default, write)
    gpu.drop(live)
    assert gpu.allocate(0, size, default).block.address != address
    gpu.sync_stream(default)
    assert ctypes.string_at(address, size) == b"\xff" * size
    assert gpu.allocate(0, size, default).block.address == address


@pytest.mark.parametrize("name", NAMES)
def test_frees_from_many_threads(name: str) -> None:
    gpu, default, side = machine(name, "random:1")

    def work() -> None:
        for turn in range(100):
            live = gpu.allocate(0, 512 * (1 + turn % 7), (default, side)[turn % 2])
            with gpu.monitor:
                use(gpu, (side, default)[turn % 3 % 2], live, "use")
            gpu.drop(live)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    errors: list[BaseException] = []
    threads = [threading.Thread(target=guarded) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gpu.sync_device(0)
    assert gpu.live == {}
    assert gpu.devices[0].allocator.stats().allocation.current == 0
    assert len(gpu.ran) == 400
