"""Green contexts: streams of their own, and what the default stream's handle means in them."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streamsan.model import records as r
from streamsan.record.cuda._flags import NativeStreams
from streamsan.record.cuda._green import install_green
from tests.unit import cuda_world

GREEN, OTHER = 0x5000, 0x6000
LANE = 0x777


class Native(NativeStreams):
    """A driver: the calling thread's green context, and those that streams are of."""

    def __init__(self) -> None:
        self.current = 0

    def blocking(self, handle: int) -> bool | None:
        return handle == 0

    def identity(self, handle: int) -> int | None:
        return handle or 100 + self.current

    def green(self, handle: int) -> int | None:
        return 0 if handle else self.current


class World(cuda_world.World):
    """A recorder on a machine with green contexts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.green = Native()
        self.streams._native = self.green


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_each_context_has_a_default_stream_of_its_own(world: World) -> None:
    primary = world.streams.current(0)
    world.streams.divide()
    world.streams.divide()
    assert world.streams.current(0) == primary
    world.green.current = GREEN
    inside = world.streams.current(0)
    world.green.current = OTHER
    assert len({primary, inside, world.streams.define(0, 1)}) == 3
    world.green.current = GREEN
    assert world.streams.current(0) == world.streams.of_handle(0) == inside
    world.green.current = 0
    assert world.streams.current(0) == primary
    assert [(s.name, s.default, s.blocking) for s in world.of(r.StreamDef)] == [
        ("default", True, True),
        ("default of a green context", False, False),
        ("default of a green context", False, False),
    ]


def test_the_default_stream_may_be_met_first_in_a_context(world: World) -> None:
    world.streams.divide()
    world.green.current = GREEN
    inside = world.streams.current(0)
    world.green.current = 0
    assert world.streams.current(0) != inside
    assert [s.default for s in world.of(r.StreamDef)] == [False, True]


def test_without_contexts_the_driver_is_not_asked(world: World) -> None:
    world.green.current = GREEN  # as it may be in a program that makes them by other means
    first = world.streams.current(0)
    assert world.streams.define(0, 1) == first
    assert [s.default for s in world.of(r.StreamDef)] == [True]


def test_native_handles_are_those_of_the_driver(world: World) -> None:
    world.streams.divide()
    world.streams.current(0)
    world.green.current = GREEN
    world.streams.current(0)
    world.streams.define(0, LANE)
    assert world.streams.handles(0) == [0, 0, LANE]


def test_making_a_context_divides_the_device(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class GreenContext:
        """Shaped like torch's of 2.11."""

        @staticmethod
        def create(sms: int, device: int = 0) -> GreenContext:
            assert (sms, device) == (16, 0)
            return GreenContext()

        def Stream(self) -> Any:  # noqa: N802
            return SimpleNamespace(device_index=0, cuda_stream=LANE)

    monkeypatch.setattr(torch._C, "_CUDAGreenContext", GreenContext, raising=False)
    install_green(world.recorder)
    context = GreenContext.create(16)
    assert isinstance(context, GreenContext)
    context.Stream()
    world.green.current = GREEN
    world.streams.current(0)
    found = [(s.handle, s.default) for s in world.of(r.StreamDef)]
    assert found == [(LANE, False), (0, False)]


def test_torch_without_green_contexts_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch._C, "_CUDAGreenContext", raising=False)
    install_green(world.recorder)
    assert world.streams.current(0) == world.streams.define(0, 0)


def test_the_driver_is_asked_for_the_context_of_a_stream() -> None:
    class Driver:
        def cuStreamGetGreenCtx(self, stream: Any, answer: Any) -> int:  # noqa: N802
            answer._obj.value = GREEN if stream.value == LANE else 0
            return 0 if stream.value != 0x999 else 709

    native = NativeStreams()
    native._library = Driver()
    assert [native.green(handle) for handle in (LANE, 0x888, 0, 0x999)] == [GREEN, 0, 0, None]
    native._library = ctypes.CDLL(None)
    assert native.green(LANE) is None
