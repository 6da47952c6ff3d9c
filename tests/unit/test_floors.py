"""What all that may still come is ordered after: kept between questions, and never out of date."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsan.model.records import NONE, ThreadDef
from streamsan.order import Order, _order

STREAMS, THREADS = (100, 101, 102), (0, 1, 2, 3)
Step = tuple[int, int, int]


def perform(order: Order, step: Step) -> None:
    """Do one thing in an order."""
    kind, stream, thread = step[0], STREAMS[step[1]], THREADS[step[2]]
    if kind == 0:
        order.operate(order.stream(stream), thread)
    elif kind == 1:
        order.perform(order.thread(thread))
    elif kind == 2:
        order.stream_sync(stream, thread, NONE)
    elif kind == 3:
        order.release(0, thread)
    elif kind == 4:
        order.acquire(0, thread)
    elif kind == 5:
        order.end_thread(thread)
    elif kind == 6:
        order.define_thread(ThreadDef(thread, "", THREADS[step[1]], NONE))
    elif kind == 7:
        order.record(0, stream, thread, NONE)
    else:
        order.event_sync(0, thread, NONE)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2), st.integers(0, 3)), max_size=40))
def test_the_floors_are_what_all_live_threads_have_reached(steps: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_order, "_FEW_THREADS", 1)
        order = Order()
        for step in steps:
            perform(order, step)
            live = order._threads
            for timeline in (*STREAMS, *THREADS):
                reached = [thread.clock.get(timeline, 0) for thread in live]
                assert order.floors[timeline] == min(reached, default=0)
