"""Repairs: what would order the two sides, in the terms of the user's program."""

from __future__ import annotations

from streamsan.detect._blocks import Block
from streamsan.detect._facts import LIFETIME, Conflict
from streamsan.detect._latent import LatentGroup
from streamsan.detect._names import Names
from streamsan.model.records import NONE, OpKind

ORDERED = "or let the arena order it: --allocator bfc:event, bfc:frontier or bfc:host-sync"
"""What repairs any reuse in an arena that orders none (rule M6, `async`)."""


def repairs(conflict: Conflict, kind: str, names: Names) -> list[str]:
    """Ways to repair a race, the best first."""
    first, second = conflict.first.op, conflict.second.op
    if not names.is_stream(first.timeline):
        return [_order_threads(conflict, names)]
    if not names.is_stream(second.timeline):
        return _host_waits(conflict, names)
    wait = _wait(first.timeline, second.timeline, names.place(second.stack), names)
    if conflict.captured:
        return [f"{wait}, inside the capture"]
    block = conflict.first.block
    if kind.startswith("R07"):
        return _leave_alone(conflict, wait, names)
    if kind.startswith("R03") and block is not None:
        return _keep_block(conflict, block, wait, names)
    return [*_by_kind(conflict, kind, names), wait]


def latent_repairs(group: LatentGroup, names: Names) -> list[str]:
    """Ways to make a block safe to give up, the best first."""
    use = group.use[1]
    if group.block.policy == "async":
        place = names.place(group.free.stack)
        return [f"{names.expression(use.timeline)}.synchronize() before {place}", ORDERED]
    return _keep_or_wait(group.block, use.timeline, use.stack, group.free.stack, names)


def _by_kind(conflict: Conflict, kind: str, names: Names) -> list[str]:
    """The repair that goes with a kind, where it is more than one more wait."""
    first, second = conflict.first.op, conflict.second.op
    source, after = names.expression(first.timeline), names.place(first.stack)
    if kind.startswith("R11"):
        op, other = (first, second) if first.context == second.timeline else (second, first)
        stream = names.expression(other.timeline)
        return [f"launch {op.name} at {names.place(op.stack)} on {stream}, as its caller does"]
    if conflict.never is not None:
        place = names.place(conflict.never[1])
        return [f"record the event on {source} after {after}, and before the wait at {place}"]
    if conflict.replaced is not None:
        place = names.place(conflict.replaced.record_stack)
        return [f"give the record at {place} an event of its own"]
    if conflict.renewed is not None and conflict.direct is not None:
        wait, record = names.place(conflict.direct.wait_stack), names.place(conflict.renewed)
        return [f"move the wait at {wait} behind the record at {record}"]
    if conflict.direct is not None and kind[:3] in ("R04", "R05"):
        edge = conflict.direct
        record, wait = names.place(edge.record_stack), names.place(edge.wait_stack)
        what = f"wait at {wait}" if wait == record else f"record of the event at {record}"
        return [f"move the {what} behind {after}"]
    return []


def _leave_alone(conflict: Conflict, wait: str, names: Names) -> list[str]:
    """A collective in flight: wait for its handle (N2), or issue it behind the other side (N1).

    The program has no name for the stream of a communicator, but for one that it gave itself.
    """
    first, second = conflict.first.op, conflict.second.op
    place, found = names.place(second.stack), []
    if first.kind == OpKind.COLLECTIVE and not names.has_expression(first.timeline):
        found.append(f"call wait() on the handle of the collective before {place}")
    elif second.kind == OpKind.COLLECTIVE and not names.has_expression(second.timeline):
        stream = names.expression(first.timeline)
        found.append(f"torch.cuda.current_stream().wait_stream({stream}) before {place}")
    else:
        found.append(wait)
    block = conflict.first.block
    return [*found, ORDERED] if block is not None and _reused_at_once(block) else found


def _reused_at_once(block: Block) -> bool:
    """Whether an arena gave a block to its next owner without any order (M6, `async`)."""
    return block.policy == "async" and block.freed


def _keep_block(conflict: Conflict, block: Block, wait: str, names: Names) -> list[str]:
    """A block that changed hands: mark it, or let its owner wait before it is given up.

    An arena with the policy `async` knows neither marks nor owners.
    """
    user = conflict.first.op.timeline
    if _reused_at_once(block):
        return [wait, ORDERED]
    if user == block.stream or not block.freed or conflict.first.op.seq == LIFETIME:
        return [wait]
    if block.stream == NONE:
        return [f"{names.expression(user)}.synchronize() before {names.place(block.free_stack)}"]
    return _keep_or_wait(block, user, conflict.first.op.stack, block.free_stack, names)


def _keep_or_wait(block: Block, user: int, use: int, free: int, names: Names) -> list[str]:
    """Mark a block for its user, or let its owner wait for him, between the use and the free.

    Names only mean something in their function, and a line that both frees the old and makes the
    new tensor, as a loop's assignment does, is too late for the old one: then after the use.
    """
    rebound = names.place(free) == names.place(block.stack)
    here = f"before {names.place(free)}"
    after = f"after {names.place(use)}"
    tensor = names.variable(block.stack)
    stream = names.expression(user)
    if tensor and names.same_function(block.stack, free) and not rebound:
        mark = f"{tensor}.record_stream({stream}) {here}"
    elif tensor and names.same_function(block.stack, use):
        mark = f"{tensor}.record_stream({stream}) {after}"
    else:
        made = names.place(block.stack)
        mark = f"call record_stream({stream}) on the tensor made at {made}, {after}"
    place = here if names.same_function(use, free) and not rebound else after
    return [mark, f"or {names.expression(block.stream)}.wait_stream({stream}) {place}"]


def _wait(source: int, target: int, place: str, names: Names) -> str:
    waiting, awaited = names.expression(target), names.expression(source)
    return f"{waiting}.wait_stream({awaited}) before {place}"


def _host_waits(conflict: Conflict, names: Names) -> list[str]:
    first, place = conflict.first.op, names.place(conflict.second.op.stack)
    after = names.place(first.stack)
    return [
        f"{names.expression(first.timeline)}.synchronize() before {place}",
        f"or record an event behind {after} and call its synchronize() before {place}",
    ]


def _order_threads(conflict: Conflict, names: Names) -> str:
    first, second = conflict.first.op, conflict.second.op
    return (
        f"hand over from thread '{names.thread(first.thread)}' after {names.place(first.stack)} to"
        f" thread '{names.thread(second.thread)}' before {names.place(second.stack)}"
        " (join, queue, lock or event)"
    )
