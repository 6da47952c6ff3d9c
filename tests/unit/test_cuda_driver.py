"""Calls of the CUDA driver: errors, the context of the calling thread, events that serve again."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from streamsan.errors import UsageError
from streamsan.record.cuda import _driver as _cuda_driver
from streamsan.record.cuda._driver import Context, DriverError, Memory, Points, library
from tests.unit.fake_cuda import FakeContext

CONTEXT = 0xC0DE


class Library:
    """libcuda as far as `Context` needs it."""

    def __init__(self) -> None:
        self.current = 0
        self.log: list[str] = []
        self.status = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.log.append(name)
            if name == "cuDevicePrimaryCtxRetain":
                arguments[0]._obj.value = CONTEXT
            elif name == "cuDeviceTotalMem_v2":
                arguments[0]._obj.value = 1 << 36
            elif name == "cuCtxGetCurrent":
                arguments[0]._obj.value = self.current
            elif name == "cuCtxPushCurrent_v2":
                self.current = arguments[0]
            elif name == "cuCtxPopCurrent_v2":
                self.current = 0
            elif name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_OF_SOME_KIND"
            elif name == "cuMemFree_v2":
                return self.status
            return 0

        return call


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(_cuda_driver, "library", lambda: made)
    return made


def test_context_is_entered_only_where_it_is_not_current(driver: Library) -> None:
    context = Context(0)
    assert context.total == 1 << 36
    memory = Memory(context)
    memory.release(0x100, 512)
    assert driver.log[-4:] == [
        "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuMemFree_v2", "cuCtxPopCurrent_v2",
    ]  # fmt: skip
    driver.current = CONTEXT
    memory.release(0x100, 512)
    assert driver.log[-2:] == ["cuCtxGetCurrent", "cuMemFree_v2"]


def test_errors_have_their_names(driver: Library) -> None:
    memory = Memory(Context(0))
    driver.status = 700
    with pytest.raises(DriverError, match=r"cuMemFree_v2 failed: CUDA_ERROR_OF_SOME_KIND \(700\)"):
        memory.release(0x100, 512)
    assert driver.current == 0


def test_expected_status_is_an_answer(driver: Library) -> None:
    context = Context(0)
    driver.status = 600
    assert not context.call("cuMemFree_v2", 0, expected=600)


def test_events_serve_again_once_they_are_done_or_dropped() -> None:
    context = FakeContext(0)
    points = Points(context)
    first, second = points.record(0), points.record(0)
    assert not points.done(first)
    context.done.add(1)
    assert points.done(first)
    assert points.done(first)
    third = points.record(0)
    del second
    fourth = points.record(0)
    assert len(context.named("cuEventCreate")) == 2
    assert not points.done(third)
    points.wait(fourth)
    assert points.done(fourth)
    assert len(context.named("cuEventSynchronize")) == 1


def test_machine_without_a_driver_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    library.cache_clear()
    with pytest.raises(UsageError, match="CUDA's driver cannot be loaded"):
        library()
    library.cache_clear()
