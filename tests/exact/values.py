"""What works compute, so that a wrong order shows: each writes what no other one writes."""

from __future__ import annotations

from collections.abc import Iterator

from streamsan.model import records as r
from tests.exact.executions import State, enabled, settled, start, taken
from tests.exact.machine import Byte, Machine

Values = dict[Byte, int]
Seen = dict[int, tuple[int, ...]]
Outcome = tuple[frozenset[tuple[int, tuple[int, ...]]], frozenset[tuple[Byte, int]]]
"""What each work, named by its stack, has read; and what the memory holds at the end."""


def compute(stack: int, modes: dict[Byte, int], memory: Values, seen: Seen) -> None:
    """Do a work: note what it reads, write what only it can write, from what it read."""
    reads = tuple(memory.get(byte, 0) for byte in sorted(modes) if modes[byte] & r.Mode.READ)
    seen[stack] = reads
    for byte in modes:
        if modes[byte] & r.Mode.WRITE:
            memory[byte] = hash((stack, reads))


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
            work = machine.works[step.work]
            modes = {byte: touch.mode for byte, touch in work.touches.items()}
            compute(work.stack, modes, memory, seen)
            after = (settled(machine, taken(state, agent)), outcome(memory, seen))
            if after not in known:
                known.add(after)
                stack.append(after)
