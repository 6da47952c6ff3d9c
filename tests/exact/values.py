"""What works compute, so that a wrong order shows: each writes what no other one writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamsan.model import records as r
from tests.exact.executions import State, enabled, settled, start, taken
from tests.exact.machine import Byte, Machine, Work, addresses

Values = dict[Byte, int]
Seen = dict[int, tuple[int, ...]]
Outcome = tuple[frozenset[tuple[int, tuple[int, ...]]], frozenset[tuple[Byte, int]]]
"""What each work, by its name, has read; and what the memory holds at the end."""


def name(stack: int, launch: int = r.NONE) -> int:
    """The name of a work: its stack, or that of a graph's node and of the launch that it is in."""
    return stack if launch == r.NONE else (launch << 20) + stack


def modes(accesses: Sequence[r.Access]) -> dict[Byte, int]:
    """How each byte of some accesses is touched."""
    found: dict[Byte, int] = {}
    for access in accesses:
        for address in addresses(access):
            byte = (access.space, address)
            found[byte] = found.get(byte, 0) | access.mode
    return found


def compute(work: int, touched: dict[Byte, int], memory: Values, seen: Seen) -> None:
    """Do a work: note what it reads, write what only it can write, from what it read."""
    reads = tuple(memory.get(byte, 0) for byte in sorted(touched) if touched[byte] & r.Mode.READ)
    seen[work] = reads
    for byte in touched:
        if touched[byte] & r.Mode.WRITE:
            memory[byte] = hash((work, reads))


def parts(work: Work) -> list[tuple[int, dict[Byte, int]]]:
    """What a work does, one after the other, each by its name: a launch, the nodes of its graph."""
    if work.nodes:
        return [(name(node.stack, work.stack), modes(node.accesses)) for node in work.nodes]
    return [(work.stack, {byte: touch.mode for byte, touch in work.touches.items()})]


def reads(work: Work) -> set[Byte]:
    """The bytes that a work reads as others have left them."""
    found: set[Byte] = set()
    written: set[Byte] = set()
    for _, touched in parts(work):
        found |= {byte for byte in touched if touched[byte] & r.Mode.READ} - written
        written |= {byte for byte in touched if touched[byte] & r.Mode.WRITE}
    return found


def outcome(memory: Values, seen: Seen) -> Outcome:
    """The outcome of an execution that has ended."""
    return frozenset(seen.items()), frozenset(memory.items())


def outcomes(machine: Machine) -> set[Outcome]:
    """The outcomes of all executions."""
    return set(_ends(machine))


def _ends(machine: Machine) -> Iterator[Outcome]:
    end = tuple(map(len, machine.steps))
    first: tuple[State, Outcome] = (settled(machine, start(machine)), outcome({}, {}))
    known, stack = {first}, [first]
    while stack:
        state, (read, held) = stack.pop()
        if state == end:
            yield read, held
        for agent, step in enabled(machine, state):
            assert step.work is not None
            memory, seen = dict(held), dict(read)
            for part, touched in parts(machine.works[step.work]):
                compute(part, touched, memory, seen)
            after = (settled(machine, taken(state, agent)), outcome(memory, seen))
            if after not in known:
                known.add(after)
                stack.append(after)
