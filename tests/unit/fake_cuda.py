"""A CUDA driver made of Python objects: memory by address, streams that finish when told to."""

from __future__ import annotations

import ctypes
from typing import Any

from streamsan.record.cuda._driver import Context


class FakeContext(Context):
    """One device of `total` bytes. `calls` are the driver's calls; `done`, the events passed."""

    def __init__(self, device: int, total: int = 1 << 30) -> None:
        self.total = total
        self.calls: list[tuple[Any, ...]] = []
        self.done: set[int] = set()
        self.fails: set[str] = set()
        self._top = (device + 1) << 40
        self._sizes: dict[int, int] = {}
        self._events = 0

    def call(self, name: str, *arguments: Any, expected: int = 0) -> bool:
        """Do what a call of the driver does."""
        if name in self.fails:
            raise RuntimeError(f"{name} failed")
        plain = tuple(a for a in arguments if isinstance(a, int))
        self.calls.append((name, *plain))
        if name == "cuMemAlloc_v2":
            return self._reserve(arguments[0]._obj, arguments[1], expected)
        if name == "cuMemFree_v2":
            del self._sizes[arguments[0]]
        if name == "cuEventCreate":
            self._events += 1
            arguments[0]._obj.value = self._events
        if name == "cuEventRecord":
            self.done.discard(arguments[0])
        if name == "cuEventQuery":
            return arguments[0] in self.done
        if name == "cuCtxSynchronize":
            self.done.update(range(1, self._events + 1))
        return True

    def _reserve(self, where: ctypes.c_size_t, size: int, expected: int) -> bool:
        if sum(self._sizes.values()) + size > self.total:
            assert expected == 2  # CUDA_ERROR_OUT_OF_MEMORY
            return False
        where.value, self._top = self._top, self._top + size
        self._sizes[where.value] = size
        return True

    def __enter__(self) -> None:
        """Every thread is in the context."""

    def __exit__(self, *exc_info: object) -> None: ...

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The calls of one name, without it."""
        return [call[1:] for call in self.calls if call[0] == name]
