"""How a Triton kernel uses its pointer parameters, from its TTIR: reads, writes, or both.

Addresses flow from the parameters through arithmetic, loops, branches and calls into loads, stores
and atomic operations. What flows where is a graph over the values of the whole module; a parameter
is read or written by whatever accesses memory through a value that can be reached from it. What an
operation does that is not known here is assumed to be the worst, and said to be a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from streamsan.model.records import Mode
from streamsan.record.kernels.ttir import Function, Op

_READ, _WRITE, _BOTH = int(Mode.READ), int(Mode.WRITE), int(Mode.READ_WRITE)

ACCESSES = {
    "tt.load": _READ, "tt.store": _WRITE, "tt.atomic_rmw": _BOTH, "tt.atomic_cas": _BOTH,
    "tt.descriptor_load": _READ, "tt.descriptor_gather": _READ, "tt.descriptor_store": _WRITE,
    "tt.descriptor_scatter": _WRITE, "tt.descriptor_reduce": _BOTH,
}  # fmt: skip
"""What the operations do to the memory that their first operand refers to."""

_HARMLESS = {
    "tt.addptr", "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.bitcast",
    "tt.ptr_to_int", "tt.int_to_ptr", "tt.make_tensor_ptr", "tt.make_tensor_descriptor",
    "tt.reinterpret_tensor_descriptor", "tt.advance", "tt.reshape", "tt.trans", "tt.cat", "tt.join",
    "tt.split", "tt.gather", "tt.print", "tt.assert", "tt.reduce", "tt.scan",
    "tt.reduce.return", "tt.scan.return", "tt.mulhiui", "scf.if", "scf.for", "scf.while",
    "scf.yield", "scf.condition", "tt.call", "tt.return", "cf.br", "cf.cond_br", "^",
}  # fmt: skip
"""Operations that hand addresses on and touch no memory through them, as do all of _DIALECTS."""

_DIALECTS = ("arith.", "math.", "ub.")


@dataclass(frozen=True, slots=True)
class Use:
    """What a kernel does to the memory of one pointer parameter. `mode` is 0 where it is unused.

    `known` is false where an operation took the pointer that is not known here. `values` are all
    that are made from the pointer.
    """

    mode: int
    known: bool
    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class Uses:
    """The `parameters` that are pointers, in order, and whether the kernel also reaches memory by
    addresses that it did not get as pointers (`elsewhere`).
    """

    parameters: tuple[Use, ...]
    elsewhere: bool


def uses(functions: Iterable[Function]) -> Uses:
    """What the kernel of a module does to the memory behind its parameters."""
    flow = _Flow(list(functions))
    kernel = next(function for function in flow.functions.values() if function.public)
    found = tuple(flow.use(pointer) for pointer in kernel.pointers)
    reached = flow.reached(kernel.pointers)
    made = [value for value in flow.made if value not in reached]
    return Uses(found, any(flow.use(value).mode for value in made))


class _Flow:
    """The graph: `_next` says into which values a value goes, `_sinks` what is done through it."""

    def __init__(self, functions: list[Function]) -> None:
        self.functions = {function.name: function for function in functions}
        self.made: list[int] = []
        self._next: dict[int, set[int]] = defaultdict(set)
        self._sinks: dict[int, int] = defaultdict(int)
        self._unknown: set[int] = set()
        self._returns: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        self._calls: list[tuple[str, tuple[int, ...]]] = []
        for function in functions:
            self._region(function.body, function.name, None)
        for name, results in self._calls:
            for values in self._returns[name]:
                self._hand(values, results)

    def reached(self, values: Iterable[int]) -> set[int]:
        """All that the values go into, themselves included."""
        found = set(values)
        left = list(found)
        while left:
            fresh = self._next[left.pop()] - found
            found |= fresh
            left.extend(fresh)
        return found

    def use(self, value: int) -> Use:
        """What is done to memory through a value."""
        values = frozenset(self.reached((value,)))
        mode = 0
        for reached in values:
            mode |= self._sinks[reached]
        return Use(mode, values.isdisjoint(self._unknown), values)

    def _hand(self, values: Iterable[int], receivers: Iterable[int]) -> None:
        for value, receiver in zip(values, receivers):
            self._next[value].add(receiver)

    def _region(self, body: list[Op], function: str, parent: Op | None) -> None:
        labels = {op.text: op.results for op in body if op.name == "^"}
        for op in body:
            for label, values in op.targets:
                self._hand(values, labels.get(label, ()))
            starts = [start for _, start in op.carried]
            self._hand(starts, (inner for inner, _ in op.carried))
            if op.name == "scf.for":
                self._hand(starts, op.results)  # no turn at all
            self._one(op, function, parent)
            for region in op.regions:
                self._region(region, function, op)

    def _one(self, op: Op, function: str, parent: Op | None) -> None:
        name = op.name
        if name in ACCESSES:
            if op.operands:
                self._sinks[op.operands[0]] |= ACCESSES[name]
            if name == "tt.load" and "!tt.ptr<!tt.ptr" in op.text:
                self.made += op.results
        elif name == "scf.yield" and parent is not None:
            self._yield(op, parent)
        elif name == "scf.condition" and parent is not None:
            values = op.operands[1:]
            self._hand(values, parent.results)
            self._hand(values, _arguments(parent.regions[-1]))
        elif name == "tt.return":
            self._returns[function].append(op.operands)
        elif name == "tt.call":
            self._call(op)
        elif not op.carried and name not in ("scf.if", "scf.for", "scf.while"):
            self._through(op)

    def _yield(self, op: Op, parent: Op) -> None:
        if parent.name != "scf.while":
            self._hand(op.operands, parent.results)
        self._hand(op.operands, (inner for inner, _ in parent.carried))

    def _call(self, op: Op) -> None:
        callee = op.text.strip().lstrip("@").partition("(")[0].strip('"')
        target = self.functions.get(callee)
        if target is None:
            self._assume_worst(op)
            return
        self._hand(op.operands, (value for value, _ in target.parameters))
        self._calls.append((callee, op.results))

    def _through(self, op: Op) -> None:
        for operand in op.operands:
            self._next[operand].update(op.results)
        if op.name == "tt.int_to_ptr":
            self.made += op.results
        pure = op.name in _HARMLESS or op.name.startswith(_DIALECTS) or "pure = true" in op.text
        if not pure:
            self._assume_worst(op)

    def _assume_worst(self, op: Op) -> None:
        for operand in op.operands:
            self._sinks[operand] |= _BOTH
            self._unknown.add(operand)


def _arguments(region: list[Op]) -> tuple[int, ...]:
    """The arguments of a region's first block."""
    return region[0].results if region and region[0].name == "^" else ()
