"""What is asked of a machine before CUDA starts."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any

import pytest

from streamsan.record.cuda._presence import available, device_name

ASK = "PYTORCH_NVML_BASED_CUDA_CHECK"


@pytest.mark.parametrize("given", [None, "0"])
def test_torch_is_asked_without_starting_the_driver(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def is_available() -> bool:
        asked.append(os.environ.get(ASK))
        return True

    monkeypatch.delenv(ASK, raising=False)
    if given is not None:
        monkeypatch.setenv(ASK, given)
    assert available(SimpleNamespace(cuda=SimpleNamespace(is_available=is_available)))
    assert asked == [given or "1"]
    assert os.environ.get(ASK) == given


def nvml(_: str) -> Any:
    """One device, which is the third of the machine."""

    def name(_: Any, buffer: Any, __: int) -> int:
        buffer.value = b"NVIDIA H200"
        return 0

    return SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByIndex_v2=lambda index, _: 0 if index == 2 else 2,
        nvmlDeviceGetName=name,
    )


def torch_with(index: int) -> Any:
    return SimpleNamespace(cuda=SimpleNamespace(_get_nvml_device_index=lambda _: index))


def test_the_device_has_the_name_that_nvml_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", nvml)
    assert device_name(torch_with(2)) == "NVIDIA H200"
    assert device_name(torch_with(0)) == ""


def test_without_nvml_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert device_name(torch_with(2)) == ""
