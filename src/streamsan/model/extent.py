"""Extents: the bytes of a strided tensor, in one canonical form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import gcd, prod

Extent = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""``(address, run, sizes, strides)``: see `streamsan.model.records.Access`. Strides in bytes."""


MAX_DIMS = 64
"""Most dimensions of a tensor: no framework has more."""

_BUDGET = 1 << 14
"""Values tried, at most, to tell whether two extents overlap."""


def canonical(
    address: int, itemsize: int, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> Extent | None:
    """The extent of a tensor whose `strides` are in elements, or None where it has no bytes.

    Expanded (stride 0) and one-element dimensions go, the rest is sorted by stride, dimensions
    that continue one another are merged, and the innermost contiguous stretch becomes the run.
    """
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size != 1 and stride != expected:
            break
        expected *= size
    else:  # dense and in order, by far the most common
        return (address, expected * itemsize, (), ()) if expected else None
    if 0 in sizes:
        return None
    dims = sorted((st * itemsize, sz) for sz, st in zip(sizes, strides) if sz > 1 and st)
    run = itemsize
    outer: list[tuple[int, int]] = []
    for stride, size in dims:
        if not outer and stride <= run:
            run = stride * (size - 1) + run
        elif outer and stride == outer[-1][0] * outer[-1][1]:
            outer[-1] = (outer[-1][0], outer[-1][1] * size)
        else:
            outer.append((stride, size))
    return address, run, tuple(s for _, s in outer), tuple(s for s, _ in outer)


def is_canonical(extent: Extent) -> bool:
    """Whether an extent that somebody else made has bytes, sizes and strides as it must."""
    _, run, sizes, strides = extent
    if not sizes and not strides:
        return run > 0
    shaped = len(sizes) == len(strides) <= MAX_DIMS
    return run > 0 and shaped and min(sizes) > 0 and min(strides) > 0


def span(extent: Extent) -> tuple[int, int]:
    """Lowest byte of an extent and the one after its highest."""
    address, run, sizes, strides = extent
    return address, address + run + sum((n - 1) * s for n, s in zip(sizes, strides))


def count(extent: Extent) -> int:
    """Number of runs that an extent consists of."""
    return prod(extent[2])


def runs(extent: Extent) -> Iterator[int]:
    """The address of every run of an extent; each is ``run`` bytes long."""
    address, _, sizes, strides = extent
    steps = [range(0, n * s, s) for n, s in zip(sizes, strides)]
    for offsets in product(*steps):
        yield address + sum(offsets)


def stretches(extent: Extent) -> Iterator[tuple[int, int]]:
    """First byte, and the one after the last, of each stretch of an extent without a gap, in order.

    The runs of a view that overlaps itself are neither in order nor apart.
    """
    run, starts = extent[1], iter(sorted(runs(extent)))
    start = next(starts)
    end = start + run
    for low in starts:
        if low > end:
            yield start, end
            start = low
        end = low + run
    yield start, end


def overlaps(left: Extent, right: Extent) -> bool | None:
    """Whether two extents share at least one byte: exact, through any strides.

    None says that nobody knows: the problem below is NP-hard, and strides that no program has by
    accident could keep us for ever.

    A run of `left` that starts at ``p`` and one of `right` that starts at ``q`` share a byte if and
    only if ``-right.run < q - p < left.run``. The difference is a sum of strides, each taken a
    bounded number of times: a bounded integer feasibility problem, which `_feasible` solves.
    """
    low_left, high_left = span(left)
    low_right, high_right = span(right)
    if high_left <= low_right or high_right <= low_left:
        return False
    period = gcd(*left[3], *right[3])  # columns of one matrix, most often
    if period and left[1] <= (low_right - low_left) % period <= period - right[1]:
        return False
    return _share(left, right)


@lru_cache(maxsize=4096)
def _share(left: Extent, right: Extent) -> bool | None:
    bounds: dict[int, int] = {}
    for _, _, sizes, strides in (left, right):
        for size, stride in zip(sizes, strides):
            bounds[stride] = bounds.get(stride, 0) + size - 1
    # The index i of a dimension of `left` counts downwards; n - 1 - i makes all terms positive.
    shift = right[0] - left[0] - sum((n - 1) * s for n, s in zip(left[2], left[3]))
    terms = tuple(sorted(bounds.items(), reverse=True))
    try:
        return _feasible(terms, -right[1] + 1 - shift, left[1] - 1 - shift, [_BUDGET])
    except _TooHardError:
        return None


class _TooHardError(Exception):
    """The budget is used up."""


def _feasible(terms: tuple[tuple[int, int], ...], low: int, high: int, budget: list[int]) -> bool:
    """Whether ``low <= sum(x[k] * c[k]) <= high`` has a solution with ``0 <= x[k] <= u[k]``.

    `terms` are the pairs ``(c, u)``, largest coefficient first. The largest one is tried with each
    value that the rest can still complete; a common divisor, or a rest whose sums leave no gap as
    wide as the window, decides at once. `budget` holds the number of values left to try; raises
    _TooHardError when they are used up.
    """
    total = sum(c * u for c, u in terms)
    if high < 0 or low > total:
        return False
    if low <= 0:
        return True  # all zero
    divisor = gcd(*(c for c, _ in terms))
    if high // divisor * divisor < low:
        return False
    width, reach = high - low + 1, 0
    for coefficient, bound in reversed(terms):
        if coefficient > width + reach:
            break
        reach += coefficient * bound
    else:  # the sums leave no gap that the window could fall into
        return True
    coefficient, bound = terms[0]
    rest = total - coefficient * bound
    first = max(0, -((rest - low) // coefficient))
    last = min(bound, high // coefficient)
    for x in range(first, last + 1):
        budget[0] -= 1
        if budget[0] < 0:
            raise _TooHardError
        if _feasible(terms[1:], low - coefficient * x, high - coefficient * x, budget):
            return True
    return False
