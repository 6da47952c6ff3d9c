"""The bytes that each launch of a Triton kernel touches, remembered by what they depend on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from streamsan.model.extent import Extent, canonical
from streamsan.model.records import Mode
from streamsan.record.kernels.bounds import Bounds, Code, Launch, UnboundedError, element, walk
from streamsan.record.kernels.flow import ACCESSES, Uses
from streamsan.record.kernels.sets import Strided, hull
from streamsan.record.kernels.ttir import Function, Op

Grid = tuple[int, int, int]

_MOST_LAUNCHES = 1000
"""Different launches of one kernel that are looked into; then all are taken to touch everything."""

_MOST_SETS = 4
"""Sets of bytes kept apart for one pointer and one way to touch them; more become one interval."""

_MASKS = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}
"""Which operand is the mask, where there is one."""


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes that a launch touches through the pointer of number `pointer`.

    `extent` is theirs, its address counted from the pointer; None stands for all bytes of the
    tensor that came as the pointer.
    """

    pointer: int
    mode: int
    extent: Extent | None = None


class Extents:
    """Tells what launches of one kernel touch."""

    def __init__(self, functions: Sequence[Function], found: Uses) -> None:
        kernel = next(function for function in functions if function.public)
        self._code = Code(kernel)
        self._uses = found.parameters
        self._accesses = [op for f in functions for op in walk(f.body) if op.name in ACCESSES]
        self._whole = whole([use.mode for use in found.parameters])
        self._relevant: set[int] = set()
        self._known: dict[tuple[object, ...], tuple[Touch, ...]] = {}
        self._left = _MOST_LAUNCHES

    def of(self, grid: Grid, numbers: Sequence[object]) -> tuple[Touch, ...]:
        """What a launch touches; `numbers` are its arguments that are no pointers, in order."""
        values = self._code.kernel.numbers
        if len(values) != len(numbers):
            return self._whole
        given = dict(zip(values, numbers))
        key = (*grid, *(given[value] for value in self._relevant))
        known = self._known.get(key)
        if known is None:
            if not self._left:
                return self._whole
            self._left -= 1
            whole_numbers = {v: int(n) for v, n in given.items() if isinstance(n, int)}
            known = self._find(Launch(grid, whole_numbers))
            key = (*grid, *(given[value] for value in self._relevant))
            self._known[key] = known
        return known

    def _find(self, launch: Launch) -> tuple[Touch, ...]:
        sets: dict[tuple[int, int], dict[int, list[Strided]]] = defaultdict(
            lambda: defaultdict(list)
        )
        everything: dict[int, int] = defaultdict(int)
        used: set[int] = set()
        for op in self._accesses:
            mode = ACCESSES[op.name]
            bounds = Bounds(self._code, launch, _mask(op), used)
            try:
                place = bounds.place(op.operands[0])
                if place is not None and not bounds.never:
                    sets[place.pointer, element(op)][mode].append(place.offsets)
            except UnboundedError:
                for pointer, use in enumerate(self._uses):
                    if op.operands[0] in use.values:
                        everything[pointer] |= mode
        for pointer, use in enumerate(self._uses):
            if not use.known:
                everything[pointer] = use.mode
        if not used <= self._relevant:  # what is remembered is under too short a key
            self._relevant |= used
            self._known.clear()
        found = [Touch(pointer, mode) for pointer, mode in everything.items()]
        for (pointer, size), by_mode in sets.items():
            for offsets, mode in _together(by_mode).items():
                if mode & ~everything[pointer]:
                    found.append(Touch(pointer, mode, _extent(offsets, size)))
        return tuple(found)


def whole(modes: Sequence[int]) -> tuple[Touch, ...]:
    """All bytes of each pointer that is used, where nothing more is known."""
    return tuple(Touch(pointer, mode) for pointer, mode in enumerate(modes) if mode)


def _mask(op: Op) -> int | None:
    place = _MASKS.get(op.name)
    return None if place is None or len(op.operands) <= place else op.operands[place]


def _together(by_mode: dict[int, list[Strided]]) -> dict[Strided, int]:
    """Each set of bytes with all that is done to them."""
    found: dict[Strided, int] = defaultdict(int)
    for mode, sets in by_mode.items():
        apart = list(dict.fromkeys(sets))
        if len(apart) > _MOST_SETS:
            around = apart[0]
            for other in apart[1:]:
                around = hull(around, other)
            apart = [around]
        for offsets in apart:
            found[offsets] |= mode
    return {offsets: int(Mode(mode)) for offsets, mode in found.items()}


def _extent(offsets: Strided, size: int) -> Extent | None:
    """The bytes of elements of `size` bytes at these offsets."""
    sizes = (size, *(count for _, count in offsets.dims))
    strides = (1, *(stride for stride, _ in offsets.dims))
    return canonical(offsets.base, 1, sizes, strides)
