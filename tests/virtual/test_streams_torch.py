"""``torch.cuda`` streams and events: objects, rules and errors."""

from __future__ import annotations

import threading
from typing import Any

import torch

from tests.virtual.agree import on_virtual_gpu, raised


@on_virtual_gpu("late", "program")
def test_stream_objects_compare_by_their_native_stream() -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert streams[32] == streams[0]
    assert hash(streams[32]) == hash(streams[0])
    assert streams[0] != streams[1]
    assert streams[0] != 3
    assert len(set(streams)) == 32
    again = torch.cuda.Stream(
        stream_id=streams[3].stream_id, device_index=0, device_type=streams[3].device_type
    )
    external = torch.cuda.ExternalStream(streams[3].cuda_stream)
    assert again == external == streams[3]
    assert (
        repr(external) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={external.cuda_stream:#x}>"
    )
    assert torch.cuda.default_stream() == torch.cuda.current_stream()
    assert torch.cuda.default_stream().cuda_stream == 0
    assert repr(torch.cuda.default_stream()) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"
    assert torch.cuda.default_stream().priority_range() == (0, -3)
    assert torch.cuda.Stream(priority=-9).priority == -3


@on_virtual_gpu("late", "program")
def test_generic_streams_and_events_are_those_of_the_device() -> None:
    stream, event = (
        torch.Stream(device="cuda", priority=-1),
        torch.Event("cuda", enable_timing=True),
    )
    assert isinstance(torch.cuda.Stream(), torch.Stream)
    assert isinstance(torch.cuda.Event(), torch.Event)
    assert not isinstance(stream, torch.cuda.Stream)
    assert not isinstance(event, torch.cuda.Event)
    text = f"torch.Stream device_type=cuda, device_index=0, stream_id={stream.stream_id}"
    assert repr(stream) == text
    assert repr(event) == "torch.Event device_type=cuda, device_index=-1, event_flag=1, event_id=0"
    with stream:
        assert torch.cuda.current_stream() == stream
        y = torch.ones(4, device="cuda") * 2
        event.record()
    torch.cuda.current_stream().wait_event(event)
    assert y.sum().item() == 8
    assert event.query()
    assert event.device == torch.device("cuda", 0)
    assert torch.Stream(device="cpu").device == torch.device("cpu")
    generic: Any = stream
    with torch.cuda.stream(generic):
        assert torch.cuda.current_stream() == stream


@on_virtual_gpu("late", "program")
def test_events_have_times_and_say_what_they_lack() -> None:
    plain, one, two = torch.cuda.Event(), torch.cuda.Event(True), torch.cuda.Event(True)
    assert repr(plain) == "<torch.cuda.Event uninitialized>"
    assert plain.cuda_event == 0
    assert plain.query()
    unrecorded: Any = plain.device
    assert unrecorded is None
    plain.synchronize()
    plain.wait()
    timing = "Both events must be created with argument 'enable_timing=True'."
    recorded = "Both events must be recorded before calculating elapsed time."
    assert raised(lambda: plain.elapsed_time(one)) == ("ValueError", timing)
    assert raised(lambda: one.elapsed_time(two)) == ("ValueError", recorded)
    one.record()
    assert raised(lambda: one.elapsed_time(two)) == ("ValueError", recorded)
    torch.ones(4, device="cuda")
    two.record()
    two.synchronize()
    assert one.elapsed_time(two) >= 0
    assert repr(two) == f"<torch.cuda.Event {two.cuda_event:#x}>"
    assert two.cuda_event != one.cuda_event
    assert raised(lambda: torch.cuda.Event(interprocess=True))[0] == "NotImplementedError"
    assert raised(two.ipc_handle)[0] == "NotImplementedError"


@on_virtual_gpu("late")
def test_an_event_not_reached_has_no_time() -> None:
    one, two = torch.cuda.Event(True), torch.cuda.Event(True)
    one.record()
    for _ in range(5):
        torch.ones(4, device="cuda")
    two.record()
    assert raised(lambda: one.elapsed_time(two)) == (
        "AcceleratorError",
        "CUDA error: device not ready",
    )


@on_virtual_gpu("late", devices=2)
def test_an_event_belongs_to_the_device_of_its_first_record() -> None:
    event = torch.cuda.Event(True)
    event.record(torch.cuda.current_stream(1))
    assert event.device == torch.device("cuda", 1)
    text = "Event device 1 does not match recording stream's device 0."
    assert raised(event.record) == ("RuntimeError", text)
    torch.cuda.current_stream(0).wait_event(event)
    other = torch.cuda.current_stream(0).record_event(torch.cuda.Event(True))
    torch.cuda.synchronize()
    error = ("AcceleratorError", "CUDA error: invalid resource handle")
    assert raised(lambda: event.elapsed_time(other)) == error


@on_virtual_gpu("late")
def test_a_wait_orders_and_the_lack_of_one_shows_the_old_value() -> None:
    side = torch.cuda.Stream()
    a, b = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        b.fill_(1)
    torch.cuda.current_stream().wait_stream(side)
    a.copy_(b)
    assert a.tolist() == [1.0] * 4


@on_virtual_gpu("late", "program")
def test_contexts_nest_and_restore_the_stream_and_the_device() -> None:
    default, one, two = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        with torch.cuda.stream(two), torch.cuda.stream(None):
            assert torch.cuda.current_stream() == two
        try:
            with one, two:
                raise KeyError("out")
        except KeyError:
            pass
        assert torch.cuda.current_stream() == one
    assert torch.cuda.current_stream() == default
    torch.cuda.set_stream(one)
    assert torch.cuda.current_stream() == one
    torch.cuda.set_stream(default)


@on_virtual_gpu("late", "program", devices=2)
def test_each_thread_has_its_own_current_device_and_streams() -> None:
    side, found = torch.cuda.Stream(), []
    torch.cuda.set_stream(side)
    torch.cuda.set_device(1)

    def ask() -> None:
        found.append((torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream))
        torch.cuda.set_stream(torch.cuda.Stream())
        found.append((torch.cuda.current_device(), torch.cuda.current_stream(0) == side))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [(0, 0), (0, False)]
    assert torch.cuda.current_device() == 1
    assert torch.cuda.current_stream(0) == side


@on_virtual_gpu("late", "program")
def test_a_loader_pins_in_a_thread_of_its_own() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12))
    loader = DataLoader(data, batch_size=4, pin_memory=True)
    total = torch.zeros((), device="cuda")
    for x, y in loader:
        assert x.is_pinned()
        assert y.is_pinned()
        total += x.cuda(non_blocking=True).sum() + y.cuda(non_blocking=True)[0]
    assert total.item() == 276 + 0 + 4 + 8
