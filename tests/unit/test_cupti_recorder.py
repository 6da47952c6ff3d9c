"""What the driver's callbacks show becomes records; the calls are shaped as those on an H200."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record._accounted import ACCOUNTED
from streamsan.record.cupti import _recorder as _cupti_recorder
from streamsan.record.cupti._arrays import Array
from tests.unit.cupti_world import INDEXER, A, B, C, World, cupy_array, words

GUESS, LIKELY, CERTAIN = (int(c) for c in r.Confidence)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def block(world: World, address: int, size: int) -> None:
    """A block of torch's that a tensor has shown."""
    born = world.recorder.blocks.allocated(address, 0, 0, r.NONE)
    born.device, born.size = 0, size


def test_a_pointer_is_a_guess_about_its_whole_block(world: World) -> None:
    block(world, A, 4096)
    world.launch("_Z5scalePfif", [words(A + 64), b"\x00\x04\x00\x00", b"\x00\x00\x00\x40"])
    (operation,) = world.of(r.Operation)
    assert (operation.name, operation.kind) == ("driver::scale", r.OpKind.KERNEL)
    assert operation.accesses == (r.Access(0, A, 4096, (), (), 3, "parameter 0", GUESS),)


def test_through_a_pointer_to_constants_a_kernel_only_reads(world: World) -> None:
    for address in (A, B):
        block(world, address, 4096)
    world.launch("_Z3addPKfPf", [words(A), words(B)])
    (operation,) = world.of(r.Operation)
    assert [(a.address, a.mode, a.confidence) for a in operation.accesses] == [
        (A, 1, GUESS),
        (B, 3, GUESS),
    ]


def test_pointers_in_a_structure_are_seen(world: World) -> None:
    block(world, A, 4096)
    block(world, B, 4096)
    world.launch("_Z5boxed3Box", [words(A, 1000, B)])
    (operation,) = world.of(r.Operation)
    assert [access.address for access in operation.accesses] == [A, B]


def test_a_kernel_without_known_pointers_is_no_operation(world: World) -> None:
    world.launch("spin", [words(1 << 40)])
    assert world.of(r.Operation) == []


def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CuPy whose functions say how many outputs they have."""
    module: Any = ModuleType("cupy")
    module.add = SimpleNamespace(name="cupy_add", nout=1)
    module.modf = SimpleNamespace(name="cupy_modf", nout=2)
    monkeypatch.setitem(sys.modules, "cupy", module)


def test_cupy_s_functions_read_inputs_and_write_outputs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy(monkeypatch)
    arrays = [cupy_array(at, (1000,), (4,)) for at in (A, B, C)]
    world.launch("cupy_add__float32_float32_float32", [*arrays, INDEXER], stream=0x27C282F0)
    (operation,) = world.of(r.Operation)
    assert [(a.address, a.run, a.mode, a.confidence) for a in operation.accesses] == [
        (A, 4000, 1, LIKELY),
        (B, 4000, 1, LIKELY),
        (C, 4000, 2, LIKELY),
    ]
    (stream,) = world.of(r.StreamDef)
    assert stream.handle == 0x27C282F0


def test_an_update_in_place_reads_and_writes_one_array(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy(monkeypatch)
    array = cupy_array(A, (1000,), (4,))
    world.launch("cupy_add__float32_float_float32", [array, b"\0\0\0\x40", array, INDEXER])
    (operation,) = world.of(r.Operation)
    assert [(a.mode, a.confidence) for a in operation.accesses] == [(3, LIKELY)]


def test_two_outputs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy(monkeypatch)
    arrays = [cupy_array(at, (10,), (4,)) for at in (A, B, C)]
    world.launch("cupy_modf__float32_float32_float32", arrays)
    (operation,) = world.of(r.Operation)
    assert [a.mode for a in operation.accesses] == [1, 2, 2]


def test_a_kernel_of_the_program_s_own_is_a_guess_about_the_array(world: World) -> None:
    world.launch("rk", [cupy_array(A, (50, 20), (4, 200))])
    (operation,) = world.of(r.Operation)
    (access,) = operation.accesses
    assert (access.address, access.run, access.mode, access.confidence) == (A, 4000, 3, GUESS)


def test_copies_and_fills(world: World) -> None:
    world.library.pinned.add(0x7FA400000000)
    world.call("cuMemcpyHtoDAsync_v2", words(A, 0x7FA400000000, 4096, 0x55))
    world.call("cuMemcpyDtoHAsync_v2", words(0x2CE5B7B0, A, 4000, 0x55))
    world.call("cuMemsetD32Async", words(A, 0, 100, 0x55))
    world.call("cuMemcpyDtoD_v2", words(B, A, 16))
    up, down, fill, across = world.of(r.Operation)
    assert (up.copy, down.copy, across.copy) == (
        r.CopyKind.HOST_TO_DEVICE,
        r.CopyKind.DEVICE_TO_PAGEABLE,
        r.CopyKind.DEVICE_TO_DEVICE,
    )
    assert [(a.space, a.mode, a.run, a.confidence) for a in up.accesses] == [
        (r.HOST, 1, 4096, CERTAIN),
        (0, 2, 4096, CERTAIN),
    ]
    assert [(a.mode, a.run) for a in down.accesses] == [(1, 4000)]
    assert (fill.kind, fill.accesses[0].run) == (r.OpKind.FILL, 400)
    (sync,) = world.of(r.StreamSync)  # C4: pageable memory blocks the host
    assert sync.stream == down.timeline


def test_a_copy_of_rows(world: World) -> None:
    world.library.pinned.add(0x7FA400000000)
    host, device = 1, 2
    source = (0, 0, host, 0x7FA400000000, 0, 0, 128)
    target = (8, 1, device, 0, A, 0, 64)
    held = ctypes.create_string_buffer(words(*source, *target, 32, 4))
    world.call("cuMemcpy2DAsync_v2", words(ctypes.addressof(held), 0x55))
    (copy,) = world.of(r.Operation)
    read, written = copy.accesses
    assert (read.space, read.run, read.sizes, read.strides) == (r.HOST, 32, (4,), (128,))
    assert (written.address, written.sizes, written.strides) == (A + 64 + 8, (4,), (64,))


def test_order_that_other_libraries_make(world: World) -> None:
    streams = world.recorder.streams
    timeline = streams.define(0, 0x55)
    streams.record(0x2CB240E0, timeline, 0, r.NONE)
    world.call("cuStreamWaitEvent", words(0x66, 0x2CB240E0, 0))
    world.call("cuStreamSynchronize", words(0x55))
    world.call("cuStreamQuery", words(0x55), result=600)  # not ready
    world.call("cuStreamQuery", words(0x55))
    world.call("cuCtxSynchronize_v2", words(0))
    (wait,) = world.of(r.EventWait)
    assert (wait.event, wait.stream) == (streams.event(0x2CB240E0), streams.define(0, 0x66))
    assert [sync.query for sync in world.of(r.StreamSync)] == [False, True]
    assert [sync.device for sync in world.of(r.DeviceSync)] == [0]
    assert world.of(r.Note) == []


def test_a_wait_for_an_event_that_nobody_told_of_covers_all(world: World) -> None:
    streams = world.recorder.streams
    first, second = streams.define(0, 0x55), streams.define(0, 0x66)
    world.call("cuStreamWaitEvent", words(0x77, 0x7F5404009D60, 0))
    waiting = streams.define(0, 0x77)
    assert {(w.stream) for w in world.of(r.EventWait)} == {waiting}
    assert {record.stream for record in world.of(r.EventRecord)} == {first, second}
    (note,) = world.of(r.Note)
    assert "was taken to cover all work" in note.text


def test_the_legacy_stream_and_those_of_threads(world: World) -> None:
    block(world, A, 64)
    world.call("cuStreamSynchronize", words(0))
    world.call("cuStreamSynchronize", words(1))
    world.call("cuStreamSynchronize_ptsz", words(0))
    legacy, again, own = world.of(r.StreamSync)
    assert legacy.stream == again.stream != own.stream


def test_what_is_told_elsewhere_is_left_alone(world: World) -> None:
    block(world, A, 64)
    with ACCOUNTED:
        world.launch("kernel", [words(A)])
    work = world.recorder.local
    work.inside = []
    world.launch("kernel", [words(A)])
    work.inside = None
    world.call("cuMemsetD8Async", words(A, 0, 8, 0), result=1)  # refused
    assert world.of(r.Operation) == []


def test_a_thread_unknown_to_python_is_not_sure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "_active", {})
    world.call("cuMemsetD8Async", words(A, 0, 8, 0))
    (fill,) = world.of(r.Operation)
    assert fill.accesses[0].confidence == GUESS


def test_another_tool_holds_the_subscription(world: World) -> None:
    world.cupti.held = True
    world.driver.start()
    assert world.driver.remark().startswith("kernels launched outside of torch, since another tool")


def test_it_gives_way_to_a_profiler_and_comes_back(world: World) -> None:
    driver, log = world.driver, world.cupti.log
    driver.give_way()
    driver.come_back()
    assert log == []  # it had not started
    driver.start()
    assert "cuLaunchKernel" in world.cupti.wanted
    driver.give_way()
    driver.come_back()
    assert log == ["on", "off", "on"]
    driver.give_way()
    world.cupti.held = True
    driver.come_back()
    assert log == ["on", "off", "on", "off"]
    (note,) = world.of(r.Note)  # of the first time
    assert driver.remark() == note.text
    assert "while a profiler had CUPTI's one subscription" in note.text


def test_a_wait_for_an_event_never_recorded_orders_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    world.cupti.ring = FakeRing()
    world.driver.start()
    world.recorder.streams.define(0, 0x55)
    world.call("cuStreamWaitEvent", words(0x77, 0x7F5404009D60, 0))
    assert world.of(r.EventWait) == []
    assert world.of(r.Note) == []
    world.cupti.ring.lost = 1
    world.cupti.ring.entries.append((1, 7, 0x50, 0x55))
    world.cupti.names[1] = "cuEventRecord"
    world.call("cuStreamWaitEvent", words(0x77, 0x7F5404009D60, 0))
    assert world.of(r.EventWait) != []


class FakeRing:
    """A ring with entries that somebody put there."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int, int]] = []
        self.lost = 0

    @property
    def pending(self) -> bool:
        """Whether there are any."""
        return bool(self.entries)

    def take(self) -> list[tuple[int, int, int, int]]:
        """All of them."""
        taken, self.entries = self.entries, []
        return taken


@pytest.fixture
def ring(world: World) -> FakeRing:
    made = world.cupti.ring = FakeRing()
    names = ("cuEventRecord", "cuMemFree_v2", "cuEventSynchronize", "cuEventQuery")
    world.cupti.names = dict(enumerate(names, 1))
    world.driver.start()
    return made


def test_records_of_events_are_told_with_what_comes_next(world: World, ring: FakeRing) -> None:
    ring.entries.append((1, threading.get_ident(), 0x2CB240E0, 0x55))
    world.call("cuStreamWaitEvent", words(0x66, 0x2CB240E0, 0))
    streams = world.recorder.streams
    (record,), (wait,) = world.of(r.EventRecord), world.of(r.EventWait)
    assert record.stream == streams.of_handle(0x55)
    assert (wait.event, wait.stream) == (record.event, streams.define(0, 0x66))
    assert world.of(r.Note) == []
    assert "pointers that they find in memory" in world.driver.remark()


def test_a_record_that_torch_s_trace_has_shown_is_told_once(world: World, ring: FakeRing) -> None:
    streams = world.recorder.streams
    world.driver.noted.told(0x50)
    streams.record(0x50, streams.define(0, 0x55), 0, r.NONE)
    entry = (1, threading.get_ident(), 0x50, 0x55)
    ring.entries.append(entry)
    world.call("cuStreamQuery", words(0x55))
    assert len(world.of(r.EventRecord)) == 1
    ring.entries += [entry, entry]  # the same event, by other means
    world.call("cuStreamQuery", words(0x55))
    assert len(world.of(r.EventRecord)) == 3


def test_records_while_a_profiler_is_at_work_are_not_waited_for(
    world: World, ring: FakeRing
) -> None:
    world.driver.give_way()
    world.driver.noted.told(0x50)
    world.driver.come_back()
    ring.entries.append((1, threading.get_ident(), 0x50, 0x55))
    world.call("cuStreamQuery", words(0x55))
    assert len(world.of(r.EventRecord)) == 1


def test_memory_that_goes_back_joins_the_device(world: World, ring: FakeRing) -> None:
    ring.entries.append((2, 99, A, 0))
    world.launch("spin", [words(5)])
    (sync,) = world.of(r.DeviceSync)
    assert (sync.device, sync.cause) == (0, "M3")


def test_waits_for_events_and_lost_entries(world: World, ring: FakeRing) -> None:
    ring.entries += [(1, 7, 0x50, 0x55), (3, 7, 0x50, 0), (3, 7, 0x51, 0)]
    ring.lost = 4
    world.call("cuStreamQuery", words(0x55))
    assert [s.event for s in world.of(r.EventSync)] == [world.recorder.streams.event(0x50)]
    assert any("faster than they could be told" in note.text for note in world.of(r.Note))


def test_the_ring_is_read_inside_of_operators_too(world: World, ring: FakeRing) -> None:
    ring.entries.append((1, 7, 0x50, 0x55))
    world.recorder.local.inside = []
    world.launch("kernel", [words(A)])
    world.recorder.local.inside = None
    assert len(world.of(r.EventRecord)) == 1


def test_an_array_that_a_raw_kernel_is_given(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    array = Array(A, (10,), (8,), 4)
    monkeypatch.setattr(_cupti_recorder, "given_array", {A: array}.get)
    world.launch("rk", [words(A), words(B)])
    (operation,) = world.of(r.Operation)
    assert operation.accesses == (r.Access(0, A, 4, (10,), (8,), 3, "parameter 0", GUESS),)


def test_queries_of_events_count_on_streams_of_other_libraries(
    world: World, ring: FakeRing
) -> None:
    world.recorder.streams.define(0, 0x55)  # torch's
    ring.entries += [(1, 7, 0x50, 0x55), (1, 7, 0x51, 0x66), (4, 7, 0x50, 0), (4, 7, 0x51, 0)]
    world.call("cuStreamQuery", words(0x55))
    (sync,) = world.of(r.EventSync)
    assert (sync.event, sync.query) == (world.recorder.streams.event(0x51), True)


def test_streams_of_other_libraries_have_names_of_their_own(world: World) -> None:
    world.recorder.streams.define(0, 0x55)
    for handle in (0, 0x55, 0x66, 0x77, 0x66):
        world.call("cuStreamQuery", words(handle))
    names = [stream.name for stream in world.of(r.StreamDef)]
    assert names == ["", "default", "library stream 1", "library stream 2"]
