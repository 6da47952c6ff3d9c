"""NumPy arrays over pinned memory: their end is a read; what changes under an upload, a write."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import numpy as np
import pytest

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.virtual.face import exports
from streamsan.virtual.face.exports import Exports

STREAM = 5
UP, DOWN = int(r.CopyKind.HOST_TO_DEVICE), int(r.CopyKind.DEVICE_TO_HOST)


class World:
    """An observer, its exports, and one buffer of pinned memory."""

    def __init__(self) -> None:
        self.seen: list[r.AnyRecord] = []
        self.observer = Observer()
        self.observer.begin(self.seen.append, r.Header("cuda", {}, (), {}), ())
        self.exports = Exports(self.observer)
        self.memory = np.zeros(256, np.uint8)

    def access(self, start: int, end: int, mode: r.Mode) -> r.Access:
        address = self.memory.ctypes.data + start
        return r.Access(r.HOST, address, end - start, (), (), int(mode), "self")

    def lend(self, start: int = 0, end: int = 256) -> Any:
        """An array over some of the buffer."""
        array = self.memory[start:end]
        self.exports.add(array, self.access(start, end, r.Mode.READ))
        return array

    def copy(self, kind: int, start: int = 0, end: int = 256, captured: bool = False) -> None:
        mode = r.Mode.READ if kind == UP else r.Mode.WRITE
        device = r.Access(0, 1 << 40, end - start, (), (), int(r.Mode.READ_WRITE), "other")
        accesses = (self.access(start, end, mode), device)
        self.observer.operation(
            int(r.OpKind.COPY), "aten::copy_", STREAM, accesses, copy=kind, captured=captured
        )

    def wait(self, stream: int = STREAM) -> None:
        self.observer.emit(r.StreamSync(stream, self.observer.thread(), r.NONE))

    def accesses(self) -> list[tuple[int, int, int]]:
        """Mode, first byte and end of what arrays did, as told so far."""
        base = self.memory.ctypes.data
        return [
            (access.mode, access.address - base, access.address - base + access.run)
            for record in self.seen
            if isinstance(record, r.Operation) and record.name == "Tensor.numpy"
            for access in record.accesses
        ]


@pytest.fixture
def world() -> World:
    return World()


READ, WRITE = int(r.Mode.READ), int(r.Mode.WRITE)


def test_the_end_of_an_array_is_a_read(world: World) -> None:
    array = world.lend(16, 32)
    assert world.accesses() == []
    del array
    assert world.accesses() == [(READ, 16, 32)]


def test_what_changes_under_an_upload_is_told_before_the_host_waits(world: World) -> None:
    array = world.lend()
    world.copy(UP, 64, 128)
    array[70:80] = 1
    world.wait()
    assert world.accesses() == [(WRITE, 70, 80)]
    told = [type(record) for record in world.seen]
    assert told.index(r.StreamSync) == len(told) - 1


def test_bytes_that_no_upload_reads_may_change(world: World) -> None:
    array = world.lend()
    world.copy(UP, 64, 128)
    array[:64] = 1
    array[128:] = 1
    world.wait()
    assert world.accesses() == []


def test_after_the_wait_for_its_stream_an_upload_is_over(world: World) -> None:
    array = world.lend()
    world.copy(UP)
    world.wait()
    array[:] = 1
    world.wait()
    assert world.accesses() == []


def test_after_the_wait_for_another_stream_it_is_not(world: World) -> None:
    array = world.lend()
    world.copy(UP)
    world.wait(STREAM + 1)
    array[3] = 1
    world.observer.emit(r.DeviceSync(0, world.observer.thread(), r.NONE))
    assert world.accesses() == [(WRITE, 3, 4)]


def test_an_array_of_the_moment_is_told_at_its_end(world: World) -> None:
    world.copy(UP)
    array = world.lend(8, 16)
    array[1] = 1
    del array
    assert world.accesses() == [(READ, 8, 16), (WRITE, 9, 10)]


def test_the_next_upload_is_an_occasion_too(world: World) -> None:
    array = world.lend()
    world.copy(UP, 0, 64)
    array[5] = 1
    world.copy(UP, 0, 64)
    assert world.accesses() == [(WRITE, 5, 6)]
    world.wait()
    assert len(world.accesses()) == 1


def test_memory_that_the_device_writes_is_not_compared(world: World) -> None:
    array = world.lend()
    world.copy(UP, 0, 64)
    world.copy(DOWN, 32, 96)
    array[40] = 1  # the download, for all we know
    world.copy(UP, 64, 128)
    array[70] = 1
    world.wait()
    assert world.accesses() == []


def test_memory_is_compared_again_once_a_wait_has_covered_the_download(world: World) -> None:
    array = world.lend()
    world.copy(DOWN, 32, 96)
    world.wait(STREAM + 1)
    world.copy(UP, 64, 128)
    array[70] = 1
    world.wait()
    assert world.accesses() == []
    world.copy(UP, 64, 128)
    array[71] = 1
    world.wait()
    assert world.accesses() == [(WRITE, 71, 72)]


def test_a_wait_for_another_device_covers_no_download(world: World) -> None:
    array = world.lend()
    world.copy(DOWN)
    world.observer.emit(r.DeviceSync(1, world.observer.thread(), r.NONE))
    world.copy(UP)
    array[3] = 1  # the download, for all we know
    world.wait()
    assert world.accesses() == []
    world.observer.emit(r.DeviceSync(0, world.observer.thread(), r.NONE))
    world.copy(UP)
    array[3] = 2
    world.wait()
    assert world.accesses() == [(WRITE, 3, 4)]


def test_a_captured_download_may_come_at_any_time(world: World) -> None:
    array = world.lend()
    world.copy(DOWN, 32, 96, captured=True)
    world.wait()
    world.copy(UP, 64, 128)
    array[70] = 1
    world.wait()
    assert world.accesses() == []


def test_where_numpy_is_listened_to_the_end_of_an_unused_array_is_a_guess(world: World) -> None:
    world.exports.sees_uses = True
    used, unused = world.lend(0, 16), world.lend(64, 80)
    thread = world.observer.thread()
    world.observer.operation(
        int(r.OpKind.HOST), "numpy.add", thread, (world.access(8, 16, r.Mode.READ),)
    )
    del used, unused
    ends = [x for x in world.seen if isinstance(x, r.Operation) and x.name == "Tensor.numpy"]
    assert world.accesses() == [(READ, 64, 80)]
    assert ends[0].accesses[0].confidence == r.Confidence.POSSIBLE


def test_a_guessed_write_leaves_the_comparison_to_tell(world: World) -> None:
    array = world.lend()
    world.copy(UP)
    array[9] = 1
    thread = world.observer.thread()
    guess = msgspec.structs.replace(world.access(0, 16, r.Mode.WRITE), confidence=0)
    world.observer.operation(int(r.OpKind.HOST), "numpy.ndarray.put", thread, (guess,))
    world.wait()
    assert world.accesses() == [(WRITE, 9, 10)]


def test_what_an_operator_of_the_host_writes_is_told_by_the_operator(world: World) -> None:
    array = world.lend()
    world.copy(UP)
    array[:] = 1
    thread, fill = world.observer.thread(), (world.access(0, 256, r.Mode.WRITE),)
    world.observer.operation(int(r.OpKind.HOST), "aten::fill_", thread, fill)
    world.wait()
    assert world.accesses() == []


def test_a_captured_upload_reads_nothing_yet(world: World) -> None:
    array = world.lend()
    world.copy(UP, captured=True)
    array[:] = 1
    world.wait()
    assert world.accesses() == []


def test_where_another_thread_has_waited_nobody_is_accused(world: World) -> None:
    array = world.lend()
    world.copy(UP)

    def work() -> None:
        world.wait(STREAM + 1)
        array[0] = 1

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    world.wait()
    assert world.accesses() == []


def test_large_uploads_are_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_KEPT", 100)
    array = world.lend()
    world.copy(UP)
    array[:] = 1
    world.wait()
    assert world.accesses() == []
    assert [note.topic for note in world.seen if isinstance(note, r.Note)] == ["blind-spot"]
