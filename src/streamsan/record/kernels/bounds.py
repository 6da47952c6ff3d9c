"""Which bytes a Triton kernel touches through each pointer, for one grid and one set of numbers.

The offsets that are added to a pointer are followed back through the kernel's code: to constants,
to the numbers it was launched with, to program numbers (which the grid bounds), to ranges and to
loop counters. Comparisons in the mask of a load or store bound the offsets further. All values are
`Strided` sets, so the result is never too small; what depends on data has no bounds here. This is
abstract interpretation (Cousot and Cousot, POPL 1977), with sets that are exact for affine offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamsan.record.kernels.sets import Strided, hull, interval, strided
from streamsan.record.kernels.ttir import Function, Op

_CONSTANT = re.compile(
    r"\s*(?:dense<)?(-?\d+|true|false)>?\s*(?:$|:\s*(?:tensor<[\dx]*)?(?:i\d|index))"
)
_RANGE = re.compile(r"end = (-?\d+).*start = (-?\d+)")
_ELEMENT = re.compile(r"!tt\.(?:ptr<|tensordesc<(?:tensor<)?[\dx]*x)(!tt\.ptr|[a-z]*(\d+))")
_AXES = {"x": 0, "y": 1, "z": 2}

_SAME = {
    "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
    "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "tt.bitcast",
}  # fmt: skip
"""Operations that change the shape or width of a value, and none of its numbers."""

_DEEPEST = 200
"""Operations followed from one value, at most."""


class UnboundedError(Exception):
    """A value depends on data, or on something that is not followed here."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address: the number of the pointer parameter it is made from, and offsets in bytes."""

    pointer: int
    offsets: Strided


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launch gives: the grid, and the whole numbers among the parameters, by value."""

    grid: tuple[int, int, int]
    numbers: Mapping[int, int]


class Code:
    """Where the values of a kernel come from: `made` by which operation as which result, or
    `carried` by which loop as which of its arguments (-1: the counter).
    """

    def __init__(self, kernel: Function) -> None:
        self.kernel = kernel
        self.pointers = {value: i for i, value in enumerate(kernel.pointers)}
        self.descriptors = {v for v, kind in kernel.parameters if kind == "!tt.tensordesc"}
        self.made: dict[int, tuple[Op, int]] = {}
        self.carried: dict[int, tuple[Op, int]] = {}
        for op in walk(kernel.body):
            self.made.update((result, (op, i)) for i, result in enumerate(op.results))
            if op.name == "scf.for":
                self.carried[op.induction] = (op, -1)
                self.carried.update((inner, (op, i)) for i, (inner, _) in enumerate(op.carried))


def walk(body: list[Op]) -> Iterator[Op]:
    """All operations, those of regions included."""
    for op in body:
        yield op
        for region in op.regions:
            yield from walk(region)


class Bounds:
    """Follows values of one kernel for one launch, below one mask.

    `used` collects the numbers among the parameters that mattered.
    """

    def __init__(self, code: Code, launch: Launch, mask: int | None, used: set[int]) -> None:
        self._code = code
        self._launch = launch
        self._used = used
        self._known: dict[int, Strided] = {}
        self._limits: dict[int, tuple[int | None, int | None]] = {}
        self._depth = 0
        self.never = False
        """Whether the mask is false everywhere."""
        if mask is not None:
            self._assume(mask)
            self._known.clear()  # what was found out without the limits

    # -- addresses --------------------------------------------------------------------------------

    def place(self, value: int) -> Place | None:
        """The addresses that a value stands for; None where the mask leaves none.

        Raises UnboundedError.
        """
        if value in self._code.descriptors:
            raise UnboundedError("a descriptor made by the host")
        if value in self._code.pointers:
            return Place(self._code.pointers[value], Strided(0))
        if value in self._code.carried:
            return self._carried_place(*self._code.carried[value], inside=True)
        op, index = self._source(value)
        if op.name in _SAME:
            return self.place(op.operands[0])
        if op.name == "tt.addptr":
            return self._moved(self.place(op.operands[0]), self.number(op.operands[1]), op)
        if op.name == "scf.for":
            return self._carried_place(op, index, inside=False)
        if op.name == "tt.make_tensor_descriptor":
            return self._described(op)
        raise UnboundedError(op.name)

    def _moved(self, place: Place | None, offsets: Strided, op: Op) -> Place | None:
        if place is None:
            return None
        return Place(place.pointer, place.offsets + offsets.times(element(op)))

    def _carried_place(self, loop: Op, index: int, inside: bool) -> Place | None:
        """A pointer that a loop moves on by the same distance each time."""
        start = self.place(loop.carried[index][1])
        step = self._step(loop, index)
        if step is None or start is None:
            return start
        op, distance = step
        if op.name != "tt.addptr":
            raise UnboundedError(op.name)
        return self._moved(start, self._turns(loop, self.number(distance), inside), op)

    def _described(self, op: Op) -> Place | None:
        """All that a descriptor describes: ``base, [sizes], [strides]``, strides in elements."""
        start = self.place(op.operands[0])
        match = re.search(r": <[a-z]*?(\d+)", op.text)
        rank = (len(op.operands) - 1) // 2
        if start is None or match is None:
            raise UnboundedError(op.name)
        size = max(1, int(match[1]) // 8)
        numbers = [self._one(value) for value in op.operands[1:]]
        dims = tuple((stride * size, n) for n, stride in zip(numbers[:rank], numbers[rank:]))
        if any(stride < 0 or count < 1 for stride, count in dims):
            raise UnboundedError(op.name)
        return Place(start.pointer, start.offsets + strided(0, dims))

    # -- numbers ----------------------------------------------------------------------------------

    def number(self, value: int) -> Strided:
        """The numbers that a value may be. Raises UnboundedError."""
        known = self._known.get(value)
        if known is None:
            if self._depth > _DEEPEST:
                raise UnboundedError("too deep")
            self._depth += 1
            try:
                known = self._number(value)
            finally:
                self._depth -= 1
            low, high = self._limits.get(value, (None, None))
            clipped = known.clip(low, high)
            self.never = self.never or clipped is None
            known = self._known[value] = known if clipped is None else clipped
        return known

    def _one(self, value: int) -> int:
        found = self.number(value)
        if not found.single:
            raise UnboundedError("not one number")
        return found.base

    def _source(self, value: int) -> tuple[Op, int]:
        source = self._code.made.get(value)
        if source is None:
            raise UnboundedError("an argument")
        return source

    def _number(self, value: int) -> Strided:
        if value in self._launch.numbers:
            self._used.add(value)
            return Strided(self._launch.numbers[value])
        if value in self._code.carried:
            return self._carried_number(*self._code.carried[value], inside=True)
        op, index = self._source(value)
        name = op.name
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            size = self._launch.grid[_AXES[op.text.split()[0]]]
            return interval(0, size - 1) if name.endswith("id") else Strided(size)
        if name in _LITERALS:
            return _LITERALS[name](op.text)
        if name in _SAME:
            return self.number(op.operands[0])
        if name == "scf.for":
            return self._carried_number(op, index, inside=False)
        if name == "scf.if":
            return self._either(op, index)
        if name == "arith.select":
            return hull(self.number(op.operands[1]), self.number(op.operands[2]))
        if name.startswith("arith.") and len(op.operands) == 2:
            return _binary(name, self.number(op.operands[0]), self.number(op.operands[1]))
        raise UnboundedError(name)

    def _either(self, op: Op, index: int) -> Strided:
        found = [self.number(region[-1].operands[index]) for region in op.regions if region]
        if len(found) != 2:
            raise UnboundedError(op.name)
        return hull(found[0], found[1])

    # -- loops ------------------------------------------------------------------------------------

    def _carried_number(self, loop: Op, index: int, inside: bool) -> Strided:
        if index < 0:
            first, end, step = (self.number(value) for value in loop.operands[:3])
            counter = first + self._turns(loop, step, inside)
            clipped = counter.clip(first.low, max(first.low, end.high - 1))
            return counter if clipped is None else clipped
        start = self.number(loop.carried[index][1])
        moved = self._step(loop, index)
        if moved is None:
            return start
        op, distance = moved
        if op.name != "arith.addi":
            raise UnboundedError(op.name)
        return start + self._turns(loop, self.number(distance), inside)

    def _step(self, loop: Op, index: int) -> tuple[Op, int] | None:
        """What makes a loop's argument of the next turn from that of this one, by adding which
        value; None: it stays what it is.
        """
        inner = loop.carried[index][0]
        after = loop.regions[0][-1].operands[index]
        if after == inner:
            return None
        op, _ = self._source(after)
        if len(op.operands) != 2 or inner not in op.operands:
            raise UnboundedError(op.name)
        first, second = op.operands
        return op, second if first == inner else first

    def _turns(self, loop: Op, distance: Strided, inside: bool) -> Strided:
        """``i * distance`` for the turns of a loop, or for what is left behind it."""
        first, end, step = (self.number(value) for value in loop.operands[:3])
        if not distance.single or not step.single or step.base < 1:
            raise UnboundedError("an irregular loop")
        turns = max(0, -((first.low - end.high) // step.base))
        if not inside and first.single and end.single:
            return Strided(turns * distance.base)
        count = max(1, turns if inside else turns + 1)
        return strided(0, ((abs(distance.base), count),)).times(-1 if distance.base < 0 else 1)

    # -- masks ------------------------------------------------------------------------------------

    def _assume(self, mask: int) -> None:
        """Note what holds where a mask is true; what is not understood limits nothing."""
        made = self._code.made.get(mask)
        if made is None:
            return
        op = made[0]
        if op.name in _SAME:
            self._assume(op.operands[0])
        elif op.name == "arith.andi":
            for operand in op.operands:
                self._assume(operand)
        elif op.name == "arith.cmpi":
            predicate = op.text.split(",")[0].strip()
            left, right = op.operands
            self._compare(left, predicate, right)
            self._compare(right, _MIRRORED.get(predicate, predicate), left)

    def _compare(self, value: int, predicate: str, other: int) -> None:
        try:
            found = self.number(other)
        except UnboundedError:
            return
        if predicate in ("slt", "ult"):
            self._limit(value, None, found.high - 1)
        elif predicate in ("sle", "ule"):
            self._limit(value, None, found.high)
        elif predicate == "sgt":
            self._limit(value, found.low + 1, None)
        elif predicate == "sge":
            self._limit(value, found.low, None)
        elif predicate == "eq":
            self._limit(value, found.low, found.high)

    def _limit(self, value: int, low: int | None, high: int | None) -> None:
        """Limit a value, and the one that it is a mere reshaping of."""
        was_low, was_high = self._limits.get(value, (None, None))
        low = was_low if low is None else low if was_low is None else max(low, was_low)
        high = was_high if high is None else high if was_high is None else min(high, was_high)
        self._limits[value] = (low, high)
        made = self._code.made.get(value)
        if made is not None and made[0].name in _SAME:
            self._limit(made[0].operands[0], low, high)


_MIRRORED = {
    "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle", "ult": "ugt", "ule": "uge",
}  # fmt: skip


def _constant(text: str) -> Strided:
    match = _CONSTANT.match(text)
    if match is None:
        raise UnboundedError(text)
    words = {"true": 1, "false": 0}
    return Strided(words[match[1]] if match[1] in words else int(match[1]))


def _range(text: str) -> Strided:
    match = _RANGE.search(text)
    if match is None:
        raise UnboundedError(text)
    return interval(int(match[2]), int(match[1]) - 1)


_LITERALS = {"arith.constant": _constant, "tt.make_range": _range}


def element(op: Op) -> int:
    """Bytes of what a pointer points to."""
    match = _ELEMENT.search(op.text)
    if match is None:
        raise UnboundedError(op.text)
    return max(1, int(match[2] or 64) // 8)  # a pointer has 64 bits


def _binary(name: str, left: Strided, right: Strided) -> Strided:
    """Arithmetic on sets. Divisions are of numbers that are not negative."""
    if name == "arith.addi":
        return left + right
    if name == "arith.subi":
        return left + -right
    if name == "arith.muli":
        if right.single:
            return left.times(right.base)
        if left.single:
            return right.times(left.base)
    elif name in ("arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui"):
        choose = min if "min" in name else max
        return interval(choose(left.low, right.low), choose(left.high, right.high))
    elif left.low >= 0 and right.low > 0:
        if name in ("arith.divsi", "arith.divui"):
            return interval(left.low // right.high, left.high // right.low)
        if name in ("arith.remsi", "arith.remui"):
            fits = left.high < right.low
            return left if fits else interval(0, min(left.high, right.high - 1))
    raise UnboundedError(name)
