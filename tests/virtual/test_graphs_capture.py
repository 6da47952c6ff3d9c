"""What a capture forbids, and what becomes of it: as seen on an H200 with torch 2.11."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.virtual.agree import on_virtual_gpu, raised

UNSUPPORTED = "CUDA error: operation not permitted when stream is capturing"
INVALIDATED = "CUDA error: operation failed due to a previous error during capture"
UNJOINED = "CUDA error: capturing stream has unjoined work"
ISOLATION = "CUDA error: dependency created on uncaptured work in another stream"
CAPTURED_EVENT = (
    "CUDA error: operation not permitted on an event last recorded in a capturing stream"
)
COPY = "Cannot copy between CPU and CUDA tensors during CUDA graph capture"
FINE: tuple[str, str] = ("", "")


class Scene:
    """A capturing stream, others, tensors and events for the calls under test."""

    def __init__(self) -> None:
        self.s, self.o = torch.cuda.Stream(), torch.cuda.Stream()
        self.a = torch.ones(4, device="cuda")
        self.host = torch.ones(4)
        self.pinned = self.host.pin_memory()
        self.old, self.new = torch.cuda.Event(), torch.cuda.Event()
        torch.cuda.synchronize()

    def on(self, stream: torch.cuda.Stream, call: Callable[[], Any]) -> None:
        """Call with `stream` current."""
        with torch.cuda.stream(stream):
            call()

    def joined(self) -> None:
        """Fork, and join."""
        self.fork()
        self.s.wait_stream(self.o)

    def empty_fork(self) -> None:
        """Draw the other stream in without work, and join."""
        self.new.record()
        self.o.wait_event(self.new)
        self.s.wait_stream(self.o)

    def ask_own_event(self) -> None:
        """Ask for an event of the capture."""
        self.new.record()
        self.new.query()

    def wait_for_own_event(self) -> None:
        """Wait for an event of the capture."""
        self.new.record()
        self.new.synchronize()

    def fork(self) -> None:
        """Draw the other stream into the capture and give it work."""
        self.new.record()
        self.o.wait_event(self.new)
        self.on(self.o, lambda: self.a + 1)

    def elsewhere(self, call: Callable[[], Any]) -> None:
        """Call in another thread, whose error counts."""
        found: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if found:
            raise found[0]

    def capture(self, call: Callable[[], Any], mode: str = "global") -> tuple[str, str]:
        """What the call raises inside a capture, and what the end of the capture does."""
        inside = outside = ""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.s, capture_error_mode=mode):
                self.a + 1
                try:
                    call()
                except RuntimeError as error:
                    inside = str(error)
        except RuntimeError as error:
            outside = str(error)
        torch.cuda.set_stream(torch.cuda.default_stream())
        self.usable()
        return inside, outside

    def usable(self) -> None:
        """The process works on: operators, synchronisation, another capture."""
        assert (self.a + 1).sum().item() == 8
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.s):
            b = self.a + 2
        graph.replay()
        torch.cuda.synchronize()
        assert b.tolist() == [3.0] * 4


def expect(got: tuple[str, str], wanted: tuple[str, str]) -> None:
    """Both messages begin as they should."""
    for text, start in zip(got, wanted):
        assert text.startswith(start), (got, wanted)
        assert bool(text) == bool(start), (got, wanted)


@on_virtual_gpu("late", "program", "random:1")
def test_waiting_is_refused_and_spoils_the_capture() -> None:
    x = Scene()
    x.old.record(x.o)
    for call in (
        torch.cuda.synchronize, x.s.synchronize, x.o.synchronize, x.old.synchronize, x.old.query,
        torch.cuda.default_stream().synchronize, x.a.sum().item, x.s.query, x.o.query,
        lambda: x.pinned.to("cuda"), lambda: torch.nonzero(x.a),
    ):  # fmt: skip
        expect(x.capture(call), (UNSUPPORTED, INVALIDATED))


@on_virtual_gpu("late", "program")
def test_copies_of_pageable_memory_are_refused_and_the_capture_goes_on() -> None:
    x = Scene()
    for call in (x.a.cpu, x.host.cuda, lambda: x.host.to("cuda", non_blocking=True)):
        expect(x.capture(call), (COPY, ""))


@on_virtual_gpu("late", "program")
def test_what_a_capture_can_hold_is_allowed() -> None:
    x = Scene()
    unrecorded = torch.cuda.Event()
    for call in (
        lambda: x.pinned.to("cuda", non_blocking=True), unrecorded.query,
        lambda: x.s.wait_event(unrecorded), torch.cuda.empty_cache,
        lambda: x.a.record_stream(x.o), lambda: torch.rand(3, device="cuda"),
        lambda: x.on(torch.cuda.default_stream(), lambda: x.a + 1),
        x.joined, x.empty_fork,
    ):  # fmt: skip
        expect(x.capture(call), FINE)


@on_virtual_gpu("late", "program")
def test_streams_must_come_from_the_capture_and_return_to_it() -> None:
    x = Scene()
    x.old.record(x.o)
    expect(x.capture(lambda: x.s.wait_event(x.old)), (ISOLATION, INVALIDATED))
    expect(x.capture(lambda: x.s.wait_stream(x.o)), (ISOLATION, INVALIDATED))
    expect(x.capture(x.fork), ("", UNJOINED))

    def joined_too_early() -> None:
        x.fork()
        x.new.record(x.o)
        x.on(x.o, lambda: x.a + 1)
        x.s.wait_event(x.new)

    expect(x.capture(joined_too_early), ("", UNJOINED))


@on_virtual_gpu("late", "program")
def test_an_event_of_the_capture_cannot_be_waited_for_by_the_host() -> None:
    x, y = Scene(), Scene()
    expect(x.capture(x.ask_own_event), (CAPTURED_EVENT, INVALIDATED))
    expect(y.capture(y.wait_for_own_event), (CAPTURED_EVENT, INVALIDATED))


@on_virtual_gpu("late", "program")
def test_the_mode_says_what_other_threads_may_do() -> None:
    x = Scene()

    def big() -> Any:
        return torch.empty(24 << 20, device="cuda")

    for call in (torch.cuda.synchronize, lambda: (x.a + 1).sum().item(), big):
        expect(x.capture(lambda call=call: x.elsewhere(call)), (UNSUPPORTED, INVALIDATED))  # type: ignore[misc]
    expect(x.capture(lambda: x.elsewhere(big), "thread_local"), FINE)
    wait = torch.cuda.synchronize
    expect(x.capture(lambda: x.elsewhere(wait), "thread_local"), (UNSUPPORTED, INVALIDATED))
    expect(x.capture(lambda: x.elsewhere(lambda: x.a + 1)), FINE)
    expect(x.capture(x.o.synchronize, "relaxed"), FINE)
    expect(x.capture(x.s.synchronize, "relaxed"), (UNSUPPORTED, INVALIDATED))


@on_virtual_gpu("late", "program")
def test_memory_from_the_driver_outside_the_capture_is_refused() -> None:
    x = Scene()
    expect(x.capture(lambda: x.on(x.o, lambda: x.a + 1)), (UNSUPPORTED, INVALIDATED))


@on_virtual_gpu()
def test_a_replay_is_refused_and_the_capture_goes_on() -> None:
    """As torch 2.11 on an H200 does."""
    x, y = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    inner, outer = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        x += 1
    with torch.cuda.graph(outer):
        kind, text = raised(inner.replay)
        y += 1
    assert kind == "RuntimeError"
    assert text.startswith("Cannot prepare for replay during capturing stage.")
    outer.replay()
    assert x.tolist() == [0.0] * 4
    assert y.tolist() == [1.0] * 4


@on_virtual_gpu("late", "program")
def test_an_exception_of_the_program_comes_through() -> None:
    x = Scene()
    with (
        pytest.raises(ZeroDivisionError, match="mine"),
        torch.cuda.graph(torch.cuda.CUDAGraph(), stream=x.s),
    ):
        raise ZeroDivisionError("mine")
    x.usable()


@on_virtual_gpu("late", "program")
def test_misuse_of_a_graph_is_told() -> None:
    x = Scene()
    graph = torch.cuda.CUDAGraph()
    wrong: list[tuple[Callable[[], Any], str]] = [
        (graph.capture_begin, "CUDA graphs must be captured on a non-default stream"),
        (graph.replay, "Called CUDAGraph::replay without a preceding successful capture"),
        (graph.pool, "Called CUDAGraph::pool() without a preceding successful capture"),
        (graph.capture_end, "CUDA error: the operation cannot be performed in the present state"),
    ]
    for call, text in wrong:
        assert raised(call)[1].startswith(text)
    graph.reset()
    graph.reset()
    with torch.cuda.stream(x.s):
        graph.capture_begin()
        graph.capture_end()
        assert "already owns a captured graph" in raised(graph.capture_begin)[1]
        graph.reset()
        graph.capture_begin()
        graph.capture_end()
    x.usable()


@on_virtual_gpu("late")
def test_errors_are_of_the_type_of_a_cuda_build() -> None:
    x = Scene()
    with (
        pytest.raises(torch.AcceleratorError) as caught,
        torch.cuda.graph(torch.cuda.CUDAGraph(), stream=x.s),
    ):
        torch.cuda.synchronize()
    assert str(caught.value) == INVALIDATED
    assert isinstance(caught.value.__context__, torch.AcceleratorError)
