"""Explanations: the order that is missing, and the order that comes nearest to it."""

from __future__ import annotations

from streamsan.detect._facts import LIFETIME, Conflict, Part
from streamsan.detect._latent import LatentGroup
from streamsan.detect._names import Names
from streamsan.model.records import Confidence, Mode, Operation, OpKind
from streamsan.order import Edge


def missing_edge(conflict: Conflict, names: Names) -> str:
    """Which two operations nothing orders."""
    first, second = conflict.first, conflict.second
    text = f"nothing orders {_doing(first.op, names)} before {_doing(second.op, names)}"
    if conflict.captured:
        return f"{text} inside the captured graph"
    block = first.block
    if conflict.moved and block is not None and block.freed:
        text += f"; its block was given up at {names.place(block.free_stack)} and handed out again"
        if block.policy == "async":
            text += ", for which the arena waits for nothing"
    return text + _guess(conflict)


def _guess(conflict: Conflict) -> str:
    """Which of the two operations are known by a pointer alone, and what that means.

    The host's own, by an array alone: what is done with that is not seen.
    """
    guessed = [part for part in conflict.sides if part.access.confidence == Confidence.POSSIBLE]
    names = " and ".join(dict.fromkeys(part.op.name for part in guessed))
    if not names:
        return ""
    if all(part.op.kind == OpKind.HOST for part in guessed):
        return f"; but which of these bytes were used through {names}, if any, is not known"
    return (
        f"; but what {names} does with a pointer among its parameters is not known, so that it was"
        " taken to read and write all of that memory"
    )


def missing_latent_edge(group: LatentGroup, names: Names) -> str:
    """Why the next owner of a block would not be safe."""
    owner = names.actor(group.block.stream)
    return (
        f"nothing orders {_doing(group.use[1], names)} before the next use of its block, which is"
        f" given up at {names.place(group.free.stack)} and goes back to {owner}"
    )


def nearest_edge(conflict: Conflict, names: Names) -> str | None:
    """The last direct order between the sides, or a failed attempt, and why it does not help."""
    first, target = conflict.first, conflict.second.op.timeline
    actor, source = names.actor(target), names.actor(first.op.timeline)
    if conflict.never is not None:
        place = names.place(conflict.never[1])
        return f"{actor} waited at {place} for an event never recorded, which orders nothing"
    if conflict.replaced is not None:
        lost = conflict.replaced
        return (
            f"the event recorded at {names.place(lost.record_stack)} covered"
            f" {_access_at(first, names)}, but it was recorded again elsewhere before {actor}"
            f" waited for it at {names.place(lost.wait_stack)}"
        )
    if conflict.renewed is not None and conflict.direct is not None:
        place = names.place(conflict.direct.wait_stack)
        return (
            f"{actor} waited for the event at {place}, before it was recorded again at"
            f" {names.place(conflict.renewed)}: the wait took the version before"
            f" {_access_at(first, names)}"
        )
    if conflict.beside is not None and conflict.direct is None:
        other, place = names.actor(conflict.beside[0]), names.place(conflict.beside[1])
        return f"{actor} waited at {place} for {other}, not for {source}"
    if conflict.nearest is None:
        return None
    who = actor if conflict.nearest is conflict.direct else "the host"
    return _edge(conflict.nearest, source, who, _access_at(first, names), names)


def nearest_latent_edge(group: LatentGroup, names: Names) -> str | None:
    """The last order from the user of a block to its owner or to the thread that gives it up."""
    if group.nearest is None:
        return None
    op = group.use[1]
    used = f"the last use at {names.place(op.stack)}"
    who = "the host" if group.nearest.number == 0 else names.actor(group.block.stream)
    return _edge(group.nearest, names.actor(op.timeline), who, used, names)


def _edge(edge: Edge, source: str, target: str, use: str, names: Names) -> str:
    wait, record = names.place(edge.wait_stack), names.place(edge.record_stack)
    if edge.number == 0 or wait == record:
        return f"{target} last waited for {source} at {wait}, before {use}"
    version = f" (version {edge.number})" if edge.number > 1 else ""
    return (
        f"{target} last waited for {source} at {wait}, for an event recorded at {record}{version},"
        f" before {use}"
    )


def access_word(mode: int) -> str:
    """The mode of an access in words."""
    return {Mode.READ: "read", Mode.WRITE: "write"}.get(Mode(mode), "read-write")


def _access_at(part: Part, names: Names) -> str:
    word = "read" if part.access.mode == Mode.READ else "write"
    return f"the {word} at {names.place(part.op.stack)}"


def _doing(op: Operation, names: Names) -> str:
    """An operation as the subject of a sentence, with its timeline and line."""
    name = f"the {op.name}" if op.seq == LIFETIME else op.name
    actor = names.actor(op.timeline)
    if actor == "the host" and names.thread(op.timeline):
        actor = f"the host's thread '{names.thread(op.timeline)}'"
    return f"{actor} ({name} at {names.place(op.stack)})"
