"""An arena as torch's allocator: the addresses it hands over, and failures of operators."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from streamsan.errors import UsageError
from streamsan.record import Options, _arena, _torch, use_allocator
from streamsan.record._native_code import supported
from streamsan.record.cuda._mode import CudaMode
from tests.unit.arena_world import MAIN, SIDE, World


@pytest.fixture
def here() -> World:
    return World("bfc:async")


class Torch:
    """What torch keeps of a foreign allocator: the addresses of its functions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: dict[str, int] = {}
        self.changed = 0
        for name in ("customAllocator", "changeCurrentAllocator"):
            monkeypatch.setattr(torch._C, f"_cuda_{name}", getattr(self, name), raising=False)
        monkeypatch.setattr(_arena, "library", lambda: None)
        monkeypatch.setattr(_arena, "install_figures", lambda _: None)
        monkeypatch.setattr(_arena, "_current", None)
        self.set_record_stream_fn = lambda at: self.addresses.update(record_stream=at)
        self.set_reset_fn = lambda at: self.addresses.update(reset=at)

    def customAllocator(self, malloc: int, free: int) -> Torch:  # noqa: N802 - torch's name
        self.addresses.update(malloc=malloc, free=free)
        return self

    def changeCurrentAllocator(self, allocator: Torch) -> None:  # noqa: N802 - torch's name
        assert allocator is self
        self.changed += 1

    def call(self, name: str, result: Any, *arguments: int) -> int:
        kinds = {4: "QQiQ", 3: "QiQ", 2: "QQ", 0: ""}[len(arguments)]
        types = [ctypes.c_int if kind == "i" else ctypes.c_size_t for kind in kinds]
        made = ctypes.CFUNCTYPE(result, *types)(self.addresses[name])
        return int(made(*arguments) or 0)


needs_code = pytest.mark.skipif(not supported(), reason="needs Linux on x86-64")


@needs_code
def test_calls_by_address_reach_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    here, shown = World("caching"), Torch(monkeypatch)
    here.arena.install()
    address = shown.call("malloc", ctypes.c_size_t, 4096, 0, MAIN)
    shown.call("record_stream", None, address, SIDE)
    shown.call("free", None, address, 4096, 0, MAIN)
    assert shown.call("malloc", ctypes.c_size_t, 4096, 0, MAIN) != address
    here.context.done.add(1)
    shown.call("reset", None)
    assert shown.call("malloc", ctypes.c_size_t, 4096, 0, MAIN) == address
    assert shown.changed == 1
    assert here.errors() == []


@needs_code
def test_process_has_one_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Torch(monkeypatch)
    arena = _arena.use("bfc:event")
    assert _arena.use("bfc:event") is arena is _arena.current()
    assert shown.changed == 1
    with pytest.raises(UsageError, match="is the bfc:event allocator's: start a new one for bfc:a"):
        _arena.use("bfc:async")


@needs_code
def test_recording_takes_the_allocator_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Torch(monkeypatch)
    assert _torch._prepared("cuda", Options()).arena is None
    arena = _arena.use("bfc:event")
    installed = _torch._prepared("cuda", Options(allocator="bfc:event"))
    assert installed.arena is arena
    assert installed.observer is arena.observer
    with pytest.raises(UsageError, match="is the bfc:event allocator's"):
        _torch._prepared("cuda", Options())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_allocator_without_a_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="no CUDA device is to be had here"):
        use_allocator("bfc:async")


def test_allocator_that_comes_too_late_is_refused(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Torch(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(UsageError, match="--allocator bfc:async comes too late"):
        here.arena.install()
    assert shown.addresses == {}


def test_operator_fails_with_the_reason_of_its_allocation(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        assert here.malloc(2 << 30) == 0
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("streamsan.record.cuda._mode.run", failing)
    with CudaMode(here.recorder), pytest.raises(torch.OutOfMemoryError, match="allocate 2048"):
        torch.ones(3)


def test_other_errors_of_an_operator_stay_what_they_are(here: World) -> None:
    with CudaMode(here.recorder), pytest.raises(RuntimeError, match="shape"):
        torch.ones(3).view(7)
