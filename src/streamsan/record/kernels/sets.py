"""Sets of integers of the form ``base + i1 * stride1 + i2 * stride2 + ...`` with bounded ``i``.

That is what offsets in a kernel are made of: a program's number times a block size plus a range,
row times pitch plus column. A result that has not this form is a larger set that has.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 6
"""Dimensions kept, at most: a set of more becomes the interval around it."""


@dataclass(frozen=True, slots=True)
class Strided:
    """All ``base + sum(i[k] * stride[k])`` with ``0 <= i[k] < count[k]``.

    `dims` are pairs of stride and count, both positive, smallest stride first; none can be merged
    with its neighbour. Without any the set is one number.
    """

    base: int
    dims: tuple[tuple[int, int], ...] = ()

    @property
    def low(self) -> int:
        """The smallest number."""
        return self.base

    @property
    def high(self) -> int:
        """The largest number."""
        return self.base + sum(stride * (count - 1) for stride, count in self.dims)

    @property
    def single(self) -> bool:
        """Whether it is one number."""
        return not self.dims

    def __add__(self, other: Strided) -> Strided:
        return strided(self.base + other.base, (*self.dims, *other.dims))

    def __neg__(self) -> Strided:
        return Strided(-self.high, self.dims)

    def times(self, factor: int) -> Strided:
        """All numbers of the set times a factor."""
        if factor < 0:
            return -self.times(-factor)
        return strided(self.base * factor, tuple((s * factor, n) for s, n in self.dims))

    def clip(self, low: int | None, high: int | None) -> Strided | None:
        """At least the numbers of the set from `low` to `high` (None: no limit); None is empty."""
        low = self.low if low is None else max(low, self.low)
        high = self.high if high is None else min(high, self.high)
        if low > high:
            return None
        if self.single or (low == self.low and high == self.high):
            return self
        *inner, (stride, count) = self.dims
        reach = sum(s * (n - 1) for s, n in inner)
        first = max(0, -((self.base + reach - low) // stride))
        last = min(count - 1, (high - self.base) // stride)
        if first > last:
            return None
        return strided(self.base + first * stride, (*inner, (stride, last - first + 1)))


def interval(low: int, high: int) -> Strided:
    """All numbers from `low` to `high`."""
    return strided(low, ((1, high - low + 1),))


def hull(one: Strided, other: Strided) -> Strided:
    """A set that has the numbers of both: one of them where they are equal, else an interval."""
    if one == other:
        return one
    return interval(min(one.low, other.low), max(one.high, other.high))


def strided(base: int, dims: tuple[tuple[int, int], ...]) -> Strided:
    """A set from dimensions in any order, of any stride that is not negative; counts from 1."""
    kept: list[tuple[int, int]] = []
    for stride, count in sorted(d for d in dims if d[0] and d[1] > 1):
        if kept:
            small, many = kept[-1]
            if stride % small == 0 and stride <= small * many:  # continues it, or overlaps with it
                kept[-1] = (small, many + (count - 1) * (stride // small))
                continue
        kept.append((stride, count))
    if len(kept) > _MOST:
        kept = [(1, sum(stride * (count - 1) for stride, count in kept) + 1)]
    return Strided(base, tuple(kept))
