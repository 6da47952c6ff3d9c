"""Every execution of a small program: all states that its machine can be in, each visited once.

A state is how far each agent has come. From each, every agent whose next step is possible may be
the one that takes it; that is the whole of an execution's freedom, so that visiting all states
visits all executions. Two works are next to each other in both orders where one state lets both be
the next step.

A step that does no work takes nothing from the others: what was possible before it is possible
after it. So each execution has a twin with the same order of works, in which such steps are taken
as soon as they can be, and it is enough to visit the twins (`idle` visits all the others, too).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.exact.machine import Machine, Point, Step

State = tuple[int, ...]


def start(machine: Machine) -> State:
    """The state in which no agent has taken a step."""
    return (0,) * len(machine.steps)


def enabled(machine: Machine, state: State) -> Iterator[tuple[int, Step]]:
    """Each agent that can take its next step in a state, with that step."""
    for agent, steps in enumerate(machine.steps):
        position = state[agent]
        if position < len(steps):
            step = steps[position]
            if all(state[other] >= count for other, count in step.needs):
                yield agent, step


def taken(state: State, agent: int) -> State:
    """The state after an agent's next step."""
    return (*state[:agent], state[agent] + 1, *state[agent + 1 :])


def settled(machine: Machine, state: State) -> State:
    """The state after all steps without work that can be taken."""
    going = True
    while going:
        going = False
        for agent, step in enabled(machine, state):
            if step.work is None:
                state, going = taken(state, agent), True
                break
    return state


def states(machine: Machine, idle: bool = False) -> Iterator[tuple[State, list[int]]]:
    """Every state that some execution passes, with the works that may run next in it."""
    first = start(machine) if idle else settled(machine, start(machine))
    seen, stack = {first}, [first]
    while stack:
        state = stack.pop()
        works = []
        for agent, step in enabled(machine, state):
            if step.work is not None:
                works.append(step.work)
            after = taken(state, agent)
            if not idle:
                after = settled(machine, after)
            if after not in seen:
                seen.add(after)
                stack.append(after)
        yield state, works


def reached(state: State, points: tuple[Point, ...]) -> bool:
    """Whether a state lies beyond all points."""
    return all(state[agent] >= count for agent, count in points)


def neighbours(machine: Machine, idle: bool = False) -> set[tuple[int, int]]:
    """All pairs of works that can run next to each other in either order."""
    found = set()
    for _, works in states(machine, idle):
        works.sort()
        found |= {(a, b) for i, a in enumerate(works) for b in works[i + 1 :]}
    return found
