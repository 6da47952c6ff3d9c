"""The bridge from torch's allocator calls to our allocators, over a driver of Python objects."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from streamsan.allocator import NAMES
from streamsan.model import records as r
from streamsan.record._arena_figures import Figures, refuse_captures
from tests.unit.arena_world import MAIN, SIDE, World


@pytest.fixture
def world() -> Iterator[Callable[[str], World]]:
    made: list[World] = []

    def make(name: str) -> World:
        made.append(World(name))
        return made[-1]

    yield make
    for one in made:
        one.observer.end(0)


Make = Callable[[str], World]


@pytest.mark.parametrize("name", NAMES)
def test_blocks_come_and_go(world: Make, name: str) -> None:
    here = world(name)
    addresses = [here.malloc(size, stream) for size in (0, 1, 4000, 3 << 20) for stream in (0, 7)]
    assert len(set(addresses)) == len(addresses)
    assert all(addresses)
    for address in addresses:
        here.free(address)
    stats = here.arena.device(0).allocator.stats()
    assert stats.allocation.current == 0
    assert stats.allocation.allocated == 8
    here.arena.empty_cache()
    assert here.errors() == []


def test_async_hands_a_chunk_over_at_once(world: Make) -> None:
    here = world("bfc:async")
    address = here.malloc(4096)
    here.report(address, 4096)
    here.free(address)
    assert here.malloc(4096, SIDE) == address
    here.report(address, 4096)
    assert here.kinds() == ["Alloc", "Free", "Alloc"]
    first, second = (x for x in here.seen if isinstance(x, r.Alloc))
    assert first.allocator == "bfc:async"
    assert first.stream != second.stream
    assert here.context.named("cuCtxSynchronize") == []


def test_host_sync_waits_before_the_free(world: Make) -> None:
    here = world("bfc:host-sync")
    address = here.malloc(4096)
    here.report(address, 4096)
    here.free(address)
    assert here.kinds() == ["Alloc", "DeviceSync", "Free"]
    assert next(x.cause for x in here.seen if isinstance(x, r.DeviceSync)) == "M6"
    assert len(here.context.named("cuCtxSynchronize")) == 1


def test_event_orders_the_next_owner_after_every_user(world: Make) -> None:
    here = world("bfc:event")
    address = here.malloc(4096)
    here.report(address, 4096)
    here.arena.used(address, SIDE)
    here.arena.used(address, SIDE)
    here.free(address)
    assert {stream for _, stream in here.context.named("cuEventRecord")} == {MAIN, SIDE}
    assert here.malloc(4096, 0x99) == address
    assert len(here.context.named("cuStreamWaitEvent")) == 2
    wanted = ["Alloc", *["EventRecord"] * 2, "Free", *["EventWait"] * 2]
    assert here.kinds() == wanted
    recorded = {x.event for x in here.seen if isinstance(x, r.EventRecord)}
    assert {x.event for x in here.seen if isinstance(x, r.EventWait)} == recorded


def test_frontier_keeps_a_chunk_from_others_until_the_device_has_passed(world: Make) -> None:
    here = world("bfc:frontier")
    address = here.malloc(2 << 20)
    here.free(address)
    assert address not in (here.malloc(2 << 20, SIDE), here.malloc(2 << 20, SIDE))
    here.context.done.update(range(1, 100))
    assert here.malloc(2 << 20, SIDE) == address


def test_quarantine_poisons_in_the_order_of_the_owner(world: Make) -> None:
    here = world("quarantine")
    address = here.malloc(4096, SIDE)
    here.free(address)
    ((start, value, size, stream),) = here.context.named("cuMemsetD8Async")
    assert (start, value, stream) == (address, 0xFF, SIDE)
    assert size >= 4096


def test_free_of_an_operand_is_told_after_the_operator(world: Make) -> None:
    here = world("bfc:event")
    address, other = here.malloc(4096), here.malloc(8192)
    here.report(address, 4096)
    here.report(other, 8192)
    held = here.inside(address)
    here.free(other)
    assert here.kinds()[2:] == ["EventRecord", "Free"]
    here.free(address)
    assert here.malloc(4096, SIDE) == address
    assert here.kinds()[4:] == []
    for work in held:
        work()
    assert here.kinds()[4:] == ["EventRecord", "Free", "EventWait"]


def test_record_stream_reaches_the_allocator(world: Make) -> None:
    here = world("caching")
    address = here.malloc(4096)
    here.arena.record_stream(address, SIDE)
    here.arena.record_stream(0xDEAD, SIDE)
    here.free(address)
    assert here.malloc(4096) != address
    assert [stream for _, stream in here.context.named("cuEventRecord")] == [SIDE]
    here.context.done.add(1)
    assert here.malloc(4096) == address
    assert here.errors() == []


def test_out_of_memory_is_torchs(world: Make) -> None:
    here = world("bfc:async")
    assert here.malloc(2 << 30) == 0
    failure = here.arena.take_failure(RuntimeError("std::bad_alloc"))
    assert isinstance(failure, torch.OutOfMemoryError)
    assert "CUDA out of memory. Tried to allocate 2048.00 MiB." in str(failure)
    assert here.arena.take_failure(RuntimeError("std::bad_alloc")) is None
    assert here.malloc(2 << 30) == 0
    assert here.arena.take_failure(RuntimeError("of another kind")) is None
    assert here.errors() == []


def test_memory_is_given_back_before_a_request_fails(world: Make) -> None:
    here = world("caching")
    address = here.malloc(700 << 20)
    here.report(address, 700 << 20)
    here.free(address)
    assert here.malloc(900 << 20)
    assert here.kinds() == ["Alloc", "Free", "DeviceSync"]
    assert next(x.cause for x in here.seen if isinstance(x, r.DeviceSync)) == "M3"


def test_error_of_ours_is_told_once_and_memory_still_comes(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("bfc:async")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(here.arena.device(0).allocator, "allocate", broken)
    first, second = here.malloc(4096), here.malloc(4096)
    assert first
    assert second not in (0, first)
    here.arena.record_stream(first, SIDE)
    here.free(first)
    assert len(here.context.named("cuMemFree_v2")) == 1
    (told,) = here.errors()
    assert "a mistake of ours" in told


def test_error_of_ours_in_a_free_is_told(world: Make) -> None:
    here = world("bfc:host-sync")
    address = here.malloc(4096)
    here.context.fails.add("cuCtxSynchronize")
    here.free(address)
    here.free(0xDEAD)
    assert any("cuCtxSynchronize failed" in text for text in here.errors())
    assert here.malloc(4096)


def test_interrupt_becomes_the_programs_again(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("bfc:async")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    address = here.malloc(4096)
    allocator = here.arena.device(0).allocator
    monkeypatch.setattr(allocator, "allocate", interrupted)
    assert here.malloc(4096) == 0
    failure = here.arena.take_failure(MemoryError("std::bad_alloc"))
    assert isinstance(failure, KeyboardInterrupt)
    monkeypatch.setattr(allocator, "free", interrupted)
    here.free(address)
    with pytest.raises(KeyboardInterrupt):
        here.arena.raise_interrupt()
    here.arena.raise_interrupt()
    assert here.errors() == []


def test_finalizer_inside_of_an_allocation_waits_for_its_end(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("bfc:async")
    old = here.malloc(4096)
    allocator = here.arena.device(0).allocator
    real, order = allocator.allocate, []

    def allocate(size: int, stream: int) -> object:
        here.free(old)  # as a collection of garbage in here would
        order.append(allocator.stats().allocation.current)
        return real(size, stream)

    monkeypatch.setattr(allocator, "allocate", allocate)
    assert here.malloc(4096) != old
    assert order == [1]
    assert allocator.stats().allocation.current == 1
    assert here.errors() == []


def test_many_threads_with_garbage_in_cycles(world: Make) -> None:
    here = world("bfc:async")
    barrier = threading.Barrier(6)
    live: list[set[int]] = []

    class Tensor:
        def __init__(self, address: int) -> None:
            self.address = address
            self.me = self

        def __del__(self) -> None:
            here.free(self.address)

    def work(stream: int) -> None:
        barrier.wait()
        mine = set()
        for index in range(150):
            address = here.malloc(512 + 256 * (index % 7), stream)
            if index % 3:
                Tensor(address)
            else:
                mine.add(address)
            if index % 50 == 0:
                gc.collect()
        live.append(mine)

    threads = [threading.Thread(target=work, args=(0x100 + n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert len(set.union(*live)) == sum(map(len, live)) == 300
    assert here.arena.device(0).allocator.stats().allocation.current == 300
    assert here.errors() == []


def test_forked_child_touches_nothing(world: Make) -> None:
    here = world("bfc:async")
    address = here.malloc(4096)
    calls = len(here.context.calls)
    here.recorder.leave()
    here.free(address)
    here.arena.record_stream(address, SIDE)
    here.arena.empty_cache()
    assert here.malloc(4096) == 0
    assert len(here.context.calls) == calls


def test_figures_are_those_of_the_allocator(world: Make) -> None:
    here = world("bfc:async")
    here.malloc(1000)
    figures = Figures(here.arena)
    assert figures.stats(0)["allocated_bytes"]["all"]["current"] == 1024
    figures.set_fraction(0.25, 0)
    assert figures.get_fraction(0) == 0.25
    assert here.malloc(300 << 20) == 0
    figures.reset_accumulated(0)
    assert figures.stats(0)["allocation"]["all"]["allocated"] == 0


def test_snapshot_names_native_streams(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("caching")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    here.malloc(1000, SIDE)
    (segment,) = Figures(here.arena).snapshot()["segments"]
    assert (segment["stream"], segment["device"]) == (SIDE, 0)
    assert segment["blocks"][0]["state"] == "active_allocated"


def test_capture_is_refused_in_one_sentence(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("bfc:event")

    class Graph:
        def capture_begin(self) -> None: ...

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    refuse_captures(here.arena)
    with pytest.raises(RuntimeError, match="bfc:event allocator cannot serve a graph capture"):
        Graph().capture_begin()
