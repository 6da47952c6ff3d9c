"""Streams, queries and graphs of the CUDA recorder, without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from streamsan.model import records as r
from streamsan.record.cuda._flags import NativeStreams
from streamsan.record.cuda._graphs import Graphs
from streamsan.record.cuda._methods import listen, replace
from streamsan.record.cuda._mode import CudaMode
from tests.unit.cuda_world import World

SIDE, OTHER = 0x22, 0x33
ACCESS = r.Access(0, 0x1000, 64, (), (), 2, "self")


class Graph:
    """Stands for a ``torch.cuda.CUDAGraph``."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.observer.end(0)


@pytest.fixture
def graphs(world: World) -> Graphs:
    return Graphs(world.recorder)


def captured(world: World, graphs: Graphs, stream: int = SIDE) -> Graph:
    """A graph of one operation."""
    graph = Graph()
    world.stream = stream
    graphs.begun(None, graph)
    world.recorder.operation(0, "aten::add_", world.streams.current(0), [ACCESS])
    graphs.ended(None, graph)
    world.stream = 0
    return graph


def test_a_stream_is_blocking_by_its_own_flags(world: World) -> None:
    world.native.streams = {SIDE: (True, 5), OTHER: (False, 6)}
    for handle in (SIDE, OTHER, 0x44):
        world.streams.define(0, handle)
    assert [record.blocking for record in world.of(r.StreamDef)] == [True, False, False]


def test_a_handle_that_comes_again_is_another_stream(world: World) -> None:
    world.native.streams = {SIDE: (True, 5)}
    first = world.streams.define_external(0, SIDE)
    assert world.streams.define_external(0, SIDE) == first
    world.native.streams = {SIDE: (False, 6)}
    second = world.streams.define_external(0, SIDE)
    assert second != first
    assert world.streams.define(0, SIDE) == second
    assert [record.blocking for record in world.of(r.StreamDef)] == [True, False]


def test_the_legacy_stream_has_two_handles(world: World) -> None:
    assert world.streams.define(0, 1) == world.streams.define(0, 0)
    assert world.streams.define(0, 2) != world.streams.define(0, 0)


def test_without_a_driver_nothing_is_known_of_streams() -> None:
    native = NativeStreams()
    native._library = None
    assert native.blocking(SIDE) is None
    assert native.identity(SIDE) is None


def test_a_launch_is_one_operation_of_the_captured_accesses(world: World, graphs: Graphs) -> None:
    graph = captured(world, graphs)
    graphs.launched(None, graph)
    capture, launch = world.of(r.Operation)
    assert capture.captured
    assert not launch.captured
    assert launch.graph == capture.graph
    assert launch.accesses == capture.accesses
    assert launch.timeline == world.streams.define(0, 0)


def test_threads_may_capture_at_the_same_time(world: World, graphs: Graphs) -> None:
    first, second = Graph(), Graph()
    numbers = []
    for graph, stream in ((first, SIDE), (second, OTHER)):
        world.stream = stream
        graphs.begun(None, graph)
    for stream in (SIDE, OTHER):
        capture = world.streams.capture_of(world.streams.define(0, stream))
        assert capture is not None
        numbers.append(capture.number)
    assert numbers[0] != numbers[1]
    graphs.ended(None, first)
    assert world.streams.capture_of(world.streams.define(0, SIDE)) is None
    assert world.streams.capture_of(world.streams.define(0, OTHER)) is not None
    graphs.ended(None, second)
    assert world.streams.captures == ()


def test_a_capture_that_fails_is_over(world: World) -> None:
    class Failing(Graph):
        def capture_end(self) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    graphs = Graphs(world.recorder)
    listen(world.recorder, Failing, "capture_end", graphs.ended, always=True)
    graph = Failing()
    graphs.begun(None, graph)
    with pytest.raises(RuntimeError, match="previous error"):
        graph.capture_end()
    assert world.streams.captures == ()


def test_a_graph_that_is_dropped_is_destroyed(world: World, graphs: Graphs) -> None:
    graph = captured(world, graphs)
    (number,) = {record.graph for record in world.of(r.Operation)}
    graphs.forget(None, graph)
    assert [record.graph for record in world.of(r.GraphDestroy)] == [number]
    del graph
    gc.collect()
    assert len(world.of(r.GraphDestroy)) == 1  # it was empty
    graph = captured(world, graphs)
    del graph
    gc.collect()
    assert len(world.of(r.GraphDestroy)) == 2


def test_a_graph_dropped_while_it_captures_ends_the_capture(world: World, graphs: Graphs) -> None:
    graph = Graph()
    graphs.begun(None, graph)
    del graph
    gc.collect()
    assert world.streams.captures == ()


def test_external_events_are_recorded_and_waited_for_at_each_launch(
    world: World, graphs: Graphs
) -> None:
    graph, streams = Graph(), world.streams
    begin, end = 0x10, 0x11
    streams.record(begin, streams.define(0, OTHER), 0, r.NONE)
    world.stream = SIDE
    graphs.begun(None, graph)
    streams.contexts.external = True
    streams.wait(begin, streams.current(0), 0, r.NONE)
    streams.record(end, streams.current(0), 0, r.NONE)
    streams.contexts.external = False
    graphs.ended(None, graph)
    assert world.of(r.EventWait) == []
    assert len(world.of(r.EventRecord)) == 1
    world.stream = 0
    graphs.launched(None, graph)
    wait, launch, record = world.seen[-3:]
    assert isinstance(wait, r.EventWait)
    assert isinstance(launch, r.Operation)
    assert isinstance(record, r.EventRecord)
    assert (wait.event, record.event) == (streams.event(begin), streams.event(end))
    assert wait.stream == launch.timeline == record.stream


def test_operators_of_torchs_own_can_be_left_out(world: World) -> None:
    recorder = world.recorder
    with CudaMode(recorder):
        with recorder.hidden():
            assert _get_current_dispatch_mode() is None
        assert isinstance(_get_current_dispatch_mode(), CudaMode)
    with FakeTensorMode() as other, recorder.hidden():
        assert _get_current_dispatch_mode() is other  # the program's


def test_a_graph_captured_out_of_sight_is_told_once(world: World, graphs: Graphs) -> None:
    graph = Graph()
    for _ in range(2):
        graphs.launched(None, graph)
    assert [note.topic for note in world.of(r.Note)] == ["blind-spot"]
    assert world.of(r.Operation) == []


def test_methods_of_types_made_in_c_can_be_listened_to(world: World) -> None:
    told: list[Any] = []
    kind, name = torch.Event, "query"
    original = getattr(kind, name)
    listen(world.recorder, kind, name, lambda *args: told.append(args))
    try:
        event = torch.Event("cpu")
        assert event.query()
        assert told == [(True, event)]
    finally:
        replace(kind, name, original)
    assert event.query()
    assert len(told) == 1
