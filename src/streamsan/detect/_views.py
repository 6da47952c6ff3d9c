"""Strided views that one timeline used: which of many may meet another one.

Views of one shape, such as the columns of a matrix, lie in a lattice: each of their runs starts at
the same place within a period, the greatest common divisor of the strides. Where the strides of
another access are multiples of the period too, it can only meet a view that starts within a run's
length of it there. So a search finds the few that are worth the exact comparison.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import gcd
from typing import Any

from streamsan.model.extent import Extent

Key = Any
"""What a track knows a use by: of two uses with one key only the later one is kept."""


class _Shape:
    """Views of one shape, in the order of where they start within the `period`."""

    __slots__ = ("keys", "period", "starts")

    def __init__(self, period: int) -> None:
        self.period = period
        self.starts: list[int] = []
        self.keys: list[Key] = []

    def add(self, key: Key, address: int) -> None:
        start = address % self.period
        index = bisect_right(self.starts, start)
        self.starts.insert(index, start)
        self.keys.insert(index, key)

    def near(self, run: int, extent: Extent) -> list[Key]:
        """The keys of views with such a `run` that may meet an extent."""
        period, width = self.period, run + extent[1] - 1
        if width >= period or gcd(period, *extent[3]) != period:
            return self.keys
        low = (extent[0] - run + 1) % period
        high = low + width
        found = self.keys[bisect_left(self.starts, low) : bisect_left(self.starts, high)]
        if high > period:
            found = found + self.keys[: bisect_left(self.starts, high - period)]
        return found


class Views:
    """The views among the uses of a track, by the keys that the track knows them by."""

    __slots__ = ("_count", "_shapes")

    def __init__(self) -> None:
        """None yet."""
        self._count = 0
        self._shapes: dict[tuple[int, tuple[int, ...], tuple[int, ...]], _Shape] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, key: Key, extent: Extent) -> None:
        """A view that the track did not know yet."""
        shape = self._shapes.get(extent[1:])
        if shape is None:
            shape = self._shapes[extent[1:]] = _Shape(gcd(*extent[3]))
        shape.add(key, extent[0])
        self._count += 1

    def near(self, extent: Extent) -> set[Key]:
        """The keys of all views that may share a byte with an extent; others do not."""
        found: set[Key] = set()
        for (run, _, _), shape in self._shapes.items():
            found.update(shape.near(run, extent))
        return found
