"""Device and pinned memory of the CUDA recorder, without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record.cuda._cache import Cache
from streamsan.record.cuda._host import _Host
from streamsan.record.cuda._untraced import Untraced
from tests.unit.cuda_world import World

SIDE = 0x22
PAGE = 2 << 20


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.observer.end(0)


# -- what goes back to the driver (rule M3) -------------------------------------------------------


def test_memory_given_back_in_a_request_joins_the_device(world: World) -> None:
    cache = Cache(world.observer)
    cache.handed_out(PAGE, 0, owner=1)
    assert world.of(r.DeviceSync) == []  # fresh memory, and nothing went back
    world.returned = 1
    cache.handed_out(PAGE + 512, 0, owner=1)
    assert world.of(r.DeviceSync) == []  # a page of this stream: nobody asked
    cache.handed_out(PAGE, 0, owner=2)
    assert [(sync.device, sync.cause) for sync in world.of(r.DeviceSync)] == [(0, "M3")]
    cache.handed_out(PAGE, 0, owner=1)
    assert len(world.of(r.DeviceSync)) == 1


def test_what_went_back_before_the_recording_is_no_news(world: World) -> None:
    world.returned = 7
    cache = Cache(world.observer)
    cache.start()
    cache.handed_out(PAGE, 0, owner=1)
    assert world.of(r.DeviceSync) == []


@pytest.mark.parametrize(
    ("backend", "returned", "joins"),
    [("native", 0, 0), ("native", 1, 1), ("cudaMallocAsync", 0, 1), ("pluggable", 0, 0)],
)
def test_emptying_the_cache_joins_where_something_goes_back(
    world: World, backend: str, returned: int, joins: int
) -> None:
    cache = Cache(world.observer)
    world.backend, world.returned = backend, returned
    cache.emptied()
    assert len(world.of(r.DeviceSync)) == joins


def test_torch_may_be_told_to_keep_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Cache(world.observer).uncached
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    assert Cache(world.observer).uncached


# -- allocators that tell nothing -----------------------------------------------------------------


def follow(world: World, backend: str) -> None:
    world.blocks.follow(Untraced(world.observer, backend, world.blocks.vanished))


def test_blocks_of_a_silent_allocator_live_as_long_as_their_storage(world: World) -> None:
    follow(world, "cudaMallocAsync")
    tensor = torch.ones(64)
    world.stream = SIDE
    world.blocks.seen(tensor, 0)
    world.blocks.seen(tensor[3:], 0)
    (alloc,) = world.of(r.Alloc)
    assert (alloc.address, alloc.size) == (tensor.data_ptr(), tensor.nbytes)
    assert alloc.allocator == "stream-ordered"  # rule M4
    assert alloc.stream == world.streams.define(0, SIDE)
    view = tensor[5:]
    del tensor
    gc.collect()
    assert world.of(r.Free) == []
    del view
    gc.collect()
    assert [free.block for free in world.of(r.Free)] == [alloc.block]


def test_memory_that_torch_only_borrows_is_nobodys_block(world: World) -> None:
    follow(world, "cudaMallocAsync")
    world.blocks.seen(torch.frombuffer(bytearray(64), dtype=torch.uint8), 0)
    assert world.of(r.Alloc) == []


def test_a_storage_that_moves_leaves_its_block(world: World) -> None:
    follow(world, "cudaMallocAsync")
    tensor = torch.ones(64)
    world.blocks.seen(tensor, 0)
    address = tensor.data_ptr()
    tensor.untyped_storage().resize_(1 << 20)
    world.blocks.left(address)
    world.blocks.seen(tensor, 0)
    first, second = world.of(r.Alloc)
    assert [free.block for free in world.of(r.Free)] == [first.block]
    del tensor
    gc.collect()
    assert [free.block for free in world.of(r.Free)] == [first.block, second.block]


def test_a_compiled_graph_resizes_a_storage_as_programs_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(world.recorder, "resize", lambda *given: told.append(given))
    tensor = SimpleNamespace(is_cuda=True, untyped_storage=lambda: "storage")
    op = torch.ops.inductor.resize_storage_bytes_.default
    call, _, handler, _ = world.recorder.routes.find(op)
    assert handler is not None
    handler(call, (tensor, 24), {})
    assert told == [("inductor::resize_storage_bytes_", "storage", call, (tensor, 24), {})]


def test_the_programs_own_allocator_is_trusted(world: World) -> None:
    follow(world, "pluggable")
    streams = {world.streams.define(0, 0), world.streams.define(0, SIDE)}
    tensor = torch.ones(64)
    world.blocks.seen(tensor, 0)
    del tensor
    gc.collect()
    (alloc,) = world.of(r.Alloc)
    assert (alloc.allocator, alloc.stream) == ("pluggable", r.NONE)
    marks = world.of(r.RecordStream)
    assert {mark.stream for mark in marks} == streams
    assert not any(mark.explicit for mark in marks)
    assert [note.topic for note in world.of(r.Note)] == ["blind-spot"]


# -- pinned memory --------------------------------------------------------------------------------


def test_what_lies_in_the_middle_of_a_pinned_block_is_pinned(world: World) -> None:
    block = torch.zeros(64)
    world.blocks.pinned.add(block)
    array = block.numpy()
    assert world.blocks.is_pinned(torch.from_numpy(array[8:16]))
    assert world.blocks.is_pinned(torch.frombuffer(array, dtype=torch.float32, offset=16))
    assert not world.blocks.is_pinned(torch.zeros(64))
    middle = block.data_ptr() + 100
    assert world.blocks.find(middle) == (r.HOST, block.data_ptr(), block.nbytes)
    assert world.blocks.find(block.data_ptr() + block.nbytes) is None


def test_ordinary_memory_ends_the_pinned_blocks_at_its_addresses(world: World) -> None:
    pinned = world.blocks.pinned
    memory = torch.zeros(96)
    first, second, third = (memory.data_ptr() + 128 * n for n in range(3))
    for start in (first, second, third):
        pinned.add_range(start, 128)
    pinned.drop(first + 64, 128)
    assert pinned.find(first) is None
    assert pinned.find(second) is None
    assert pinned.find(third) == (r.HOST, third, 128)
    assert len(world.of(r.Free)) == 2


def test_memory_is_pinned_while_it_is_registered(world: World) -> None:
    host = _Host(world.recorder)
    tensor = torch.zeros(64)
    host.registered(1, tensor.data_ptr(), tensor.nbytes, 0)  # refused
    assert not world.blocks.is_pinned(tensor)
    host.registered(0, tensor.data_ptr(), tensor.nbytes, 0)
    assert world.blocks.is_pinned(tensor[3:])
    host.unregistered(0, tensor.data_ptr())
    assert not world.blocks.is_pinned(tensor)
    (alloc,), (free,) = world.of(r.Alloc), world.of(r.Free)
    assert (alloc.allocator, free.block) == ("registered", alloc.block)


def test_printing_reads_pinned_memory_where_no_mode_sees_it(world: World) -> None:
    host = _Host(world.recorder)
    tensor = torch.zeros(64)
    world.blocks.pinned.add(tensor)
    host.printed("", torch.zeros(8))
    host.printed("", tensor, tensor_contents="given")
    assert world.of(r.Operation) == []
    host.printed("", tensor[16:])
    (read,) = world.of(r.Operation)
    (access,) = read.accesses
    assert (read.kind, read.name, access.mode) == (r.OpKind.HOST, "Tensor.__repr__", r.Mode.READ)
    assert (access.address, access.run) == (tensor.data_ptr() + 64, 192)
