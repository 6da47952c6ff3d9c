"""A CUDA driver that calls back, made of Python objects: what CUPTI shows of calls on an H200."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from streamsan.record.cupti._library import CallbackData, CuptiError
from streamsan.record.cupti._recorder import DriverRecorder
from tests.unit import cuda_world

A, B, C = 0x7FA557A20400, 0x7FA557A21400, 0x7FA557A22400
"""Addresses of device memory."""

CONTEXT = 0x2957A0F0


class FakeCupti:
    """CUPTI's subscription; `held` says that another tool has it, `log` what was asked for."""

    def __init__(self) -> None:
        self.held = False
        self.subscribed = False
        self.log: list[str] = []
        self.ring: Any = None
        self.names: dict[int, str] = {}
        self.wanted: set[str] = set()

    def subscribe(self, names: Any) -> None:
        if self.held:
            raise CuptiError("another tool, such as a profiler, holds CUPTI's one subscription")
        self.subscribed, self.wanted = True, set(names)
        self.log.append("on")

    def unsubscribe(self) -> None:
        self.subscribed = False
        self.log.append("off")

    def device(self, context: int | None) -> int:
        assert context == CONTEXT
        return 0


class FakeDriver:
    """The driver's library: kernels by handle with the sizes of their parameters, and pinned memory."""  # noqa: E501

    def __init__(self) -> None:
        self.kernels: dict[int, Sequence[int]] = {}
        self.pinned: set[int] = set()

    def cuFuncGetParamInfo(self, function: Any, index: Any, offset: Any, size: Any) -> int:  # noqa: N802
        sizes = self.kernels.get(function.value, ())
        if index.value >= len(sizes):
            return 1  # CUDA_ERROR_INVALID_VALUE
        offset._obj.value, size._obj.value = sum(sizes[: index.value]), sizes[index.value]
        return 0

    def cuPointerGetAttribute(self, answer: Any, attribute: int, address: Any) -> int:  # noqa: N802
        assert attribute == 2
        if address.value in self.pinned:
            answer._obj.value = 1
        elif address.value >= 0x7F0000000000:
            answer._obj.value = 2
        else:
            return 1
        return 0


class World(cuda_world.World):
    """A recorder of CUDA devices with a driver of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.cupti, self.library = FakeCupti(), FakeDriver()
        self.driver = DriverRecorder(self.recorder, self.cupti, self.library)

    def call(
        self, name: str, parameters: bytes = b"", *, symbol: str = "", result: int = 0
    ) -> None:
        """The driver ends a call."""
        held = ctypes.create_string_buffer(parameters + bytes(64))
        status = ctypes.c_int(result)
        data = CallbackData(
            1,
            name.encode(),
            ctypes.addressof(held),
            ctypes.addressof(status),
            symbol.encode() or None,
            CONTEXT,
        )
        self.driver.called(ctypes.addressof(data))

    def launch(self, symbol: str, parameters: Sequence[bytes], stream: int = 0) -> None:
        """``cuLaunchKernel`` with one thread, on a stream."""
        handle = hash(symbol) & 0xFFFFFF
        self.library.kernels[handle] = [len(parameter) for parameter in parameters]
        buffers = [ctypes.create_string_buffer(p, len(p)) for p in parameters]
        pointers = struct.pack(f"{len(buffers)}Q", *map(ctypes.addressof, buffers))
        array = ctypes.create_string_buffer(pointers, len(pointers))
        head = struct.pack("Q7I4xQ", handle, 1, 1, 1, 1, 1, 1, 0, stream)
        self.call(
            "cuLaunchKernel", head + struct.pack("QQ", ctypes.addressof(array), 0), symbol=symbol
        )


def words(*values: int) -> bytes:
    """Words of 8 bytes."""
    return struct.pack(f"{len(values)}Q", *(value & (1 << 64) - 1 for value in values))


def cupy_array(address: int, shape: Sequence[int], strides: Sequence[int]) -> bytes:
    """CuPy's parameter for an array: data, size, shape, strides."""
    size = 1
    for extent in shape:
        size *= extent
    return words(address, size, *shape, *strides)


INDEXER = words(0x3E8, 0x3E8, 0x8)
"""CuPy's parameter for the items to work on."""
