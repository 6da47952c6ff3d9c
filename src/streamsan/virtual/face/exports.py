"""NumPy arrays that share pinned memory, whose reads nobody sees.

An array that is gone before the memory was in order was read, if ever, out of order: so the end
of an array counts as its read, at the line that made it. Reads through arrays that live on are
not seen.
"""

from __future__ import annotations

import weakref
from typing import Any

import msgspec

from streamsan.model.records import Access, Confidence, OpKind
from streamsan.virtual.observer import Observer


class Exports:
    """Arrays given out so far."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._arrays: dict[int, weakref.ref[Any]] = {}

    def add(self, array: Any, access: Access) -> None:
        """`array` shares the bytes of `access`."""
        observer = self._observer
        stack, thread, key = observer.stack(), observer.thread(), id(array)
        read = msgspec.structs.replace(access, confidence=int(Confidence.LIKELY))

        def report() -> None:
            observer.operation(
                int(OpKind.HOST), "Tensor.numpy", thread, (read,), stack=stack, thread=thread
            )

        def gone(_: weakref.ref[Any]) -> None:
            self._arrays.pop(key, None)
            observer.monitor.later(report)

        self._arrays[key] = weakref.ref(array, gone)
