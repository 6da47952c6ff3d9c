"""Latent races: a block given up while another stream's use is neither recorded nor ordered."""

from __future__ import annotations

from dataclasses import dataclass

from streamsan.detect._blocks import Block
from streamsan.detect._segments import Use
from streamsan.model.records import NONE, Free
from streamsan.order import Clock, Edge, Order


@dataclass(slots=True)
class LatentGroup:
    """All latent races of one line that uses and one that gives up, told by the first of them.

    `nearest` is the last edge from the user of the block to its owner or to the freeing thread,
    `at` the number of the record that gave it up, and of the use among those that it left.
    """

    use: Use
    block: Block
    free: Free
    nearest: Edge | None
    at: tuple[int, int] = (0, 0)
    count: int = 0


def unsafe_uses(order: Order, uses: dict[int, Use], block: Block, guard: Clock) -> dict[int, Use]:
    """The last uses that leave a latent race when `block` is given up.

    That is each that the next work of the owner's stream need not come after, nor the block's
    `guard` either, which has the freeing thread and the streams recorded on the block (the truth
    table of the rules, "Verdicts").
    """
    clocks = [guard, *order.before_next(block.stream)]
    return {
        timeline: use
        for timeline, use in uses.items()
        if all(clock.get(timeline, 0) < use[0] for clock in clocks)
    }


def nearest_edge(order: Order, timeline: int, block: Block, thread: int) -> Edge | None:
    """The last edge from a user of a block to its owner, or to the thread that frees it."""
    edges = (order.edges.latest.get((timeline, end)) for end in (block.stream, thread))
    known = [edge for edge in edges if edge is not None]
    return max(known, key=lambda edge: edge.serial, default=None)


def settle(order: Order, former: Block, stream: int, thread: int) -> None:
    """The bytes of `former` are handed out again; drop what has meanwhile been ordered.

    The new owner's `stream` and the allocating `thread` are asked, at the first reuse only; and the
    frontier that a stream other than the last owner waits for (M6).
    """
    if former.reused:
        return
    former.reused = True
    clocks = [order.thread(thread).clock]
    if stream != NONE:
        clocks += order.before_next(stream)
    if former.frontier is not None and stream != former.stream:
        clocks.append(former.frontier)
    for timeline, (_, epoch) in list(former.latent.items()):
        if any(clock.get(timeline, 0) >= epoch for clock in clocks):
            dismiss(former, timeline)


def dismiss(block: Block, timeline: int) -> None:
    """The latent race of a block and a timeline is none, or has become a race."""
    found = block.latent.get(timeline)
    if found is not None:
        found[0].count -= 1
        block.latent = {other: rest for other, rest in block.latent.items() if other != timeline}
