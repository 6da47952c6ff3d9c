"""Races and latent races by their definition: two works that may both be next in some state.

Bytes that changed hands between two works are the same memory only where the allocator may have
handed them over: the earlier block's free has been performed, and what the streams recorded on the
block had enqueued by then has run (M1, M2, M5).
"""

from __future__ import annotations

from itertools import combinations

from streamsan.model import records as r
from tests.exact.executions import reached, states
from tests.exact.machine import Byte, Machine, Point, Work, captures

Pair = tuple[int, int]
Pairs = dict[Pair, set[Byte]]


def _hand_over(machine: Machine, byte: Byte, first: int, last: int) -> tuple[Point, ...] | None:
    """The points behind which the byte has gone from one tenure to another; None: never told."""
    points: set[Point] = set()
    for tenure in machine.tenures[byte][first:last]:
        if tenure.over is None:
            return None
        points.update(tenure.over)
    return tuple(sorted(points))


def _shared(machine: Machine, a: Work, b: Work) -> dict[tuple[Point, ...], set[Byte]]:
    """The bytes that conflict, by the points behind which they are the same memory."""
    found: dict[tuple[Point, ...], set[Byte]] = {}
    for byte in a.touches.keys() & b.touches.keys():
        one, two = a.touches[byte], b.touches[byte]
        if (one.mode | two.mode) & r.Mode.WRITE:
            points = _hand_over(machine, byte, one.tenure, two.tenure)
            if points is not None:
                found.setdefault(points, set()).add(byte)
    return found


def conflicts(machine: Machine) -> Pairs:
    """All pairs of works that race, each with the bytes it races on."""
    wanted = {
        (i, j): shared
        for (i, a), (j, b) in combinations(enumerate(machine.works), 2)
        if a.agent != b.agent and (shared := _shared(machine, a, b))
    }
    found: Pairs = {}
    if not wanted:
        return found
    for state, works in states(machine):
        for pair in combinations(sorted(works), 2):
            for points, touched in wanted.get(pair, {}).items():
                if reached(state, points):
                    found.setdefault(pair, set()).update(touched)
    return found


def told(machine: Machine, pairs: Pairs) -> Pairs:
    """The pairs that a report has, each with the bytes that it is told for.

    Left out is a use of bytes that have changed hands where the same agent's use of the present
    block, if it is no guess, races on them too: what orders that one orders the other (M1 gives
    reuse no order).
    """
    present = {
        (machine.works[first].agent, second, byte)
        for (first, second), touched in pairs.items()
        for byte in touched
        if not _moved(machine, first, second, byte) and _sure(machine, first, second, byte)
    }
    found: Pairs = {}
    for (first, second), touched in pairs.items():
        for byte in touched:
            hidden = (machine.works[first].agent, second, byte) in present
            if not (hidden and _moved(machine, first, second, byte)):
                found.setdefault((first, second), set()).add(byte)
    return found


def _moved(machine: Machine, first: int, second: int, byte: Byte) -> bool:
    one, two = machine.works[first], machine.works[second]
    return one.touches[byte].tenure != two.touches[byte].tenure


def _sure(machine: Machine, first: int, second: int, byte: Byte) -> bool:
    """Whether what `first` surely does with a byte races with whatever `second` does."""
    one, two = machine.works[first].touches[byte], machine.works[second].touches[byte]
    return bool(one.sure and (one.sure | two.mode) & r.Mode.WRITE)


def _certain(machine: Machine, first: int, second: int, byte: Byte) -> bool:
    """Whether a race on a byte is one without what is but possible on either side."""
    one, two = machine.works[first].touches[byte], machine.works[second].touches[byte]
    return bool(one.sure and two.sure and (one.sure | two.sure) & r.Mode.WRITE)


def races(records: list[r.AnyRecord]) -> set[Pair]:
    """The races of a recorded program, as pairs of the stacks of their works."""
    return set().union(*sorted_races(records))


def sorted_races(records: list[r.AnyRecord]) -> tuple[set[Pair], set[Pair]]:
    """The same, those without a guess first, then those that rest on one."""
    certain: set[Pair] = set()
    every: set[Pair] = set()
    for machine in (Machine(records), *captures(records)):
        for (first, second), touched in told(machine, conflicts(machine)).items():
            pair = (machine.works[first].stack, machine.works[second].stack)
            every.add(pair)
            if any(_certain(machine, first, second, byte) for byte in touched):
                certain.add(pair)
    return certain, every - certain


# Latent races


def latent(records: list[r.AnyRecord]) -> set[Pair]:
    """The latent races of a recorded program: stacks of the last use of a block, and of its free.

    The allocator was free to hand the block out at once, to a request of the block's own stream. A
    use that the next owner's first write would then race with is latent, unless the block went on
    to a new owner in this run, and either raced, or came too late to.
    """
    whole = Machine(records)
    reported = told(whole, conflicts(whole))
    found = set()
    for index, record in enumerate(records):
        if isinstance(record, r.Free):
            found |= _left_by(records, index, record, whole, reported)
    return found


def _left_by(
    records: list[r.AnyRecord], index: int, free: r.Free, whole: Machine, reported: Pairs
) -> set[Pair]:
    before = Machine(records[:index])
    block = before.blocks.get(free.block)
    if block is None or block.freed_in_order or block.record.stream == r.NONE:
        return set()
    if block.graph != r.NONE:
        return set()  # G3
    alloc = block.record
    owner = before.agents[alloc.stream]
    last = {w.agent: n for n, w in enumerate(before.works) if free.block in w.block.values()}
    waits = _waits(before, free) if block.policy == "event" else []
    at_once = _exposed([*records[: index + 1], *waits], alloc, alloc.stream, free.thread)
    later = _reuse(records, index, alloc)
    if later is not None:
        reuse = records[later]
        assert isinstance(reuse, r.Alloc)
        at_once &= _exposed(records[:later], alloc, reuse.stream, reuse.thread)
    return {
        (whole.works[work].stack, free.stack)
        for agent, work in last.items()
        if agent != owner and work in at_once
        if not _raced(whole, reported, free.block, agent)
    }


def _waits(before: Machine, free: r.Free) -> list[r.AnyRecord]:
    """M6, `event`: what lets the next owner, the block's own stream, wait for its users."""
    agents = {work.agent for work in before.works if free.block in work.block.values()}
    owner = before.blocks[free.block].record.stream
    return [
        record
        for timeline, agent in before.agents.items()
        if agent in agents and before.is_stream(timeline)
        for record in (
            r.EventRecord(-3, timeline, free.thread, r.NONE),
            r.EventWait(-3, owner, free.thread, r.NONE),
        )
    ]


def _exposed(records: list[r.AnyRecord], alloc: r.Alloc, stream: int, thread: int) -> set[int]:
    """The works that would race if the block were handed out now, and written on `stream`."""
    again = r.Alloc(
        -2, alloc.space, alloc.address, alloc.size, stream, thread, r.NONE, alloc.allocator
    )
    access = r.Access(alloc.space, alloc.address, alloc.size, (), (), r.Mode.WRITE, "")
    kind = r.OpKind.KERNEL
    if stream == r.NONE:
        stream, kind = thread, r.OpKind.HOST
    write = r.Operation(-2, int(kind), "next owner", stream, thread, r.NONE, (access,))
    machine = Machine([*records, again, write])
    return {a for a, b in conflicts(machine) if b == len(machine.works) - 1}


def _reuse(records: list[r.AnyRecord], index: int, block: r.Alloc) -> int | None:
    """The record that hands bytes of a block out again, if one does."""
    low, high = block.address, block.address + block.size
    for later in range(index + 1, len(records)):
        x = records[later]
        if not isinstance(x, r.Alloc) or x.space != block.space:
            continue
        if x.address < high and low < x.address + x.size:
            return later
    return None


def _raced(machine: Machine, reported: Pairs, block: int, agent: int) -> bool:
    """Whether a use of the block by that agent races with one of a later owner, as reported."""
    return any(
        machine.works[first].agent == agent
        and any(
            owner == block and machine.works[second].block.get(byte, block) != block
            for byte, owner in machine.works[first].block.items()
        )
        for first, second in reported
    )
