"""Parts of the CUDA recorder that need no GPU: identities of streams, events, blocks, captures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from streamsan.model import records as r
from streamsan.record._observer import Observer
from streamsan.record.cuda._memory import Blocks, has_bytes
from streamsan.record.cuda._streams import GraphCapture, Streams
from streamsan.virtual.face.copies import same_layout


class Driver:
    """What the recorder asks of the driver: the current device and its current stream."""

    def __init__(self) -> None:
        self.device = 0
        self.stream = 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.device)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: made.stream, raising=False)
    return made


@pytest.fixture
def seen() -> list[r.AnyRecord]:
    return []


@pytest.fixture
def observer(seen: list[r.AnyRecord]) -> Iterator[Observer]:
    made = Observer()
    made.begin(seen.append, r.Header("cuda", {}, (), {}), ())
    yield made
    made.end(0)


def of(kind: type[r.Record], seen: list[r.AnyRecord]) -> list[r.AnyRecord]:
    return [record for record in seen if isinstance(record, kind)]


class Wrapper(torch.Tensor):
    """A tensor without memory of its own, as distributed tensors are."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError


class Named(torch.Tensor):
    """A tensor of a class of the program's."""


def test_tensors_that_wrap_others_or_are_fake_have_no_bytes() -> None:
    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (4,), dtype=torch.float32)
    with FakeTensorMode():
        fake = torch.ones(4)
    assert not has_bytes(wrapper)
    assert not has_bytes(fake)
    assert not has_bytes(torch._efficientzerotensor((3,)))
    for plain in (torch.ones(4), torch.nn.Parameter(torch.ones(4)), torch.nn.Buffer(torch.ones(4))):
        assert has_bytes(plain)
    assert has_bytes(torch.ones(4).as_subclass(Named))


@pytest.mark.usefixtures("driver")
def test_threads_that_meet_a_stream_at_once_get_one_timeline(
    observer: Observer, seen: list[r.AnyRecord]
) -> None:
    streams = Streams(observer)
    barrier = threading.Barrier(8)
    found: list[int] = []

    def meet() -> None:
        barrier.wait()
        found.append(streams.define(0, 0x77))

    threads = [threading.Thread(target=meet) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert len(of(r.StreamDef, seen)) == 1


@pytest.mark.usefixtures("driver")
def test_per_thread_stream_is_another_one_in_each_thread(observer: Observer) -> None:
    streams = Streams(observer)
    mine = streams.define(0, 2)
    other: list[int] = []
    thread = threading.Thread(target=lambda: other.append(streams.define(0, 2)))
    thread.start()
    thread.join()
    assert streams.define(0, 2) == mine
    assert other[0] != mine


def test_default_streams_of_two_devices_are_two(observer: Observer, driver: Driver) -> None:
    streams = Streams(observer)
    first = streams.of_handle(0)
    driver.device = 1
    assert streams.of_handle(0) != first


@pytest.mark.usefixtures("driver")
def test_reused_event_handle_is_a_new_event(observer: Observer) -> None:
    streams = Streams(observer)
    first = streams.event(0x10)
    assert streams.event(0x10) == first
    streams.forget_event(0x10, observer.thread())
    assert streams.event(0x10) != first


@pytest.mark.usefixtures("driver")
def test_wait_for_a_captured_event_draws_its_stream_into_the_capture(
    observer: Observer, seen: list[r.AnyRecord]
) -> None:
    streams = Streams(observer)
    origin, side, outside = (streams.define(0, handle) for handle in (0x1, 0x22, 0x33))
    capture = GraphCapture(5, origin)
    streams.begin_capture(capture)
    streams.record(0x10, origin, 0, r.NONE)
    streams.wait(0x10, side, 0, r.NONE)
    streams.record(0x11, outside, 0, r.NONE)
    assert [record.captured for record in of(r.EventRecord, seen)] == [5, r.NONE]  # type: ignore[union-attr]
    assert [record.captured for record in of(r.EventWait, seen)] == [5]  # type: ignore[union-attr]
    assert streams.capture_of(side) is capture
    assert streams.capture_of(outside) is None
    streams.end_capture(capture)
    assert streams.capture_of(side) is None


@pytest.mark.usefixtures("driver")
def test_block_handed_out_again_inside_of_an_operator_is_a_new_one(observer: Observer) -> None:
    blocks = Blocks(observer, Streams(observer))
    blocks.allocated(0x1000, 0, 0, r.NONE)
    assert blocks.take(0x1000) is None  # never shown by a tensor: nothing to report
    blocks.allocated(0x1000, 0, 0, r.NONE)
    assert blocks.by_address.get(0x1000) is not None


@pytest.mark.usefixtures("driver")
def test_pinned_block_that_comes_again_ends_the_one_before(
    observer: Observer, seen: list[r.AnyRecord]
) -> None:
    blocks = Blocks(observer, Streams(observer))
    tensor = torch.zeros(64)
    assert not blocks.is_pinned(tensor)
    blocks.pinned.add(tensor)
    assert blocks.is_pinned(tensor)
    assert blocks.is_pinned(tensor[3:])
    blocks.pinned.add(tensor)
    first, second = of(r.Alloc, seen)
    assert [record.block for record in of(r.Free, seen)] == [first.block]  # type: ignore[union-attr]
    assert second.block != first.block  # type: ignore[union-attr]


@pytest.mark.usefixtures("driver")
def test_record_stream_of_a_pinned_tensor_names_its_block(
    observer: Observer, seen: list[r.AnyRecord]
) -> None:
    streams = Streams(observer)
    blocks = Blocks(observer, streams)
    tensor = torch.zeros(8)
    blocks.pinned.add(tensor)
    blocks.record_stream(tensor[2:], streams.define(0, 0x9), explicit=False)
    (alloc,) = of(r.Alloc, seen)
    (recorded,) = of(r.RecordStream, seen)
    assert recorded.block == alloc.block  # type: ignore[union-attr]
    assert not recorded.explicit  # type: ignore[union-attr]


@pytest.mark.usefixtures("driver")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_host_tensors_that_lie_in_no_one_piece_of_memory_are_in_no_block(
    observer: Observer, seen: list[r.AnyRecord]
) -> None:
    pinned = Blocks(observer, Streams(observer)).pinned
    pinned.add_range(0x1000, 64)
    told = len(seen)
    eye = torch.eye(3)
    for tensor in (eye.to_sparse(), eye.to_sparse_csr(), torch._efficientzerotensor((3,))):
        pinned.check(tensor)
        pinned.fresh(tensor, {})
        assert pinned.block_of(tensor) == r.NONE
    for tensor in (eye.to_sparse(), eye.to_sparse_csr()):
        assert not same_layout(tensor, eye)
    assert same_layout(eye, eye)
    assert not same_layout(eye, eye.to_sparse_csr())
    assert len(seen) == told
