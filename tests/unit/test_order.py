"""The ordering rules, each by a pair of runs in which it alone decides (ids of docs/rules.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamsan.model import records as r
from tests.unit.builder import Trace

X = (0, 64)
Rule = Callable[[Trace, bool], None]
"""Writes a run that races, or with True, its twin in which the rule orders the two accesses."""

RULES: dict[str, Rule] = {}


def rule(identity: str) -> Callable[[Rule], Rule]:
    """Register a pair of runs under the id of the rule that decides it."""

    def register(function: Rule) -> Rule:
        assert identity not in RULES
        RULES[identity] = function
        return function

    return register


@rule("S1: one stream, two threads")
def s1(t: Trace, ordered: bool) -> None:
    side, other = t.stream(), t.stream()
    worker = t.thread("worker", t.main)
    t.op(side, write=[X])
    t.op(side if ordered else other, write=[X], thread=worker)


@rule("S2: one thread")
def s2(t: Trace, ordered: bool) -> None:
    worker = t.thread("worker", t.main)
    t.host(write=[X])
    t.host(t.main if ordered else worker, write=[X])


@rule("S3: what the enqueuing thread did before")
def s3(t: Trace, ordered: bool) -> None:
    worker = t.thread("worker", t.main)
    t.host(write=[X])
    t.op(t.default, read=[X], space=r.HOST, thread=t.main if ordered else worker)


@rule("S3: not what it did after")
def s3_after(t: Trace, ordered: bool) -> None:
    if ordered:
        t.host(write=[X])
    t.op(t.default, read=[X], space=r.HOST)
    if not ordered:
        t.host(write=[X])


@rule("E1: work before the record")
def e1(t: Trace, ordered: bool) -> None:
    side = t.stream()
    if ordered:
        t.op(side, write=[X])
    t.record(1, side)
    if not ordered:
        t.op(side, write=[X])
    t.wait(1, t.default)
    t.op(t.default, read=[X])


@rule("E2: work after the wait")
def e2(t: Trace, ordered: bool) -> None:
    side = t.stream()
    t.op(side, write=[X])
    t.record(1, side)
    if ordered:
        t.wait(1, t.default)
    t.op(t.default, read=[X])
    if not ordered:
        t.wait(1, t.default)


@rule("E2: the latest version")
def e2_latest(t: Trace, ordered: bool) -> None:
    side, other = t.stream(), t.stream()
    t.op(side, write=[X])
    t.record(1, side)
    if not ordered:
        t.record(1, other)
    t.wait(1, t.default)
    t.op(t.default, read=[X])


@rule("E2: a record after the wait is not waited for")
def e2_bound(t: Trace, ordered: bool) -> None:
    side = t.stream()
    t.op(side, write=[X])
    if ordered:
        t.record(1, side)
    t.wait(1, t.default)
    if not ordered:
        t.record(1, side)
    t.op(t.default, read=[X])


@rule("E3: the host, up to the record")
def e3(t: Trace, ordered: bool) -> None:
    if ordered:
        t.op(t.default, write=[X], space=r.HOST)
    t.record(1, t.default)
    if not ordered:
        t.op(t.default, write=[X], space=r.HOST)
    t.event_sync(1)
    t.host(read=[X])


@rule("E4: a query of an event that answers done")
def e4_event(t: Trace, ordered: bool) -> None:
    t.op(t.default, write=[X], space=r.HOST)
    t.record(1, t.default)
    if ordered:
        t.event_sync(1, query=True)
    t.host(read=[X])


@rule("E4: a query of a stream that answers done")
def e4_stream(t: Trace, ordered: bool) -> None:
    t.op(t.default, write=[X], space=r.HOST)
    if ordered:
        t.stream_sync(t.default, query=True)
    t.host(read=[X])


@rule("E5: a new event under an old number")
def e5(t: Trace, ordered: bool) -> None:
    side = t.stream()
    t.op(side, write=[X])
    t.record(1, side)
    if not ordered:
        t.add(r.EventDestroy(1, t.main))
    t.wait(1, t.default)
    t.add(r.EventDestroy(1, t.main))  # orders already taken stay
    t.op(t.default, read=[X])


@rule("H1: that stream")
def h1(t: Trace, ordered: bool) -> None:
    side = t.stream()
    t.op(side, write=[X])
    t.stream_sync(side if ordered else t.default)
    t.op(t.default, read=[X])


@rule("H2: that device")
def h2(t: Trace, ordered: bool) -> None:
    t.stream("peer", device=1)
    side = t.stream()
    t.op(side, write=[X])
    t.device_sync(0 if ordered else 1)
    t.op(t.default, read=[X])


@rule("H3: that thread")
def h3(t: Trace, ordered: bool) -> None:
    side, worker = t.stream(), t.thread("worker", t.main)
    t.op(side, write=[X])
    t.stream_sync(side)
    t.op(t.default, read=[X], thread=t.main if ordered else worker)


@rule("D1: legacy stream after blocking")
def d1_after(t: Trace, ordered: bool) -> None:
    side = t.stream(blocking=ordered)
    t.op(side, write=[X])
    t.op(t.default, read=[X])


@rule("D1: blocking after legacy stream")
def d1_before(t: Trace, ordered: bool) -> None:
    side = t.stream(blocking=ordered)
    t.op(t.default, write=[X])
    t.op(side, read=[X])


@rule("D1: of one device")
def d1_device(t: Trace, ordered: bool) -> None:
    side = t.stream(device=0 if ordered else 1, blocking=True)
    t.op(side, write=[X])
    t.op(t.default, read=[X])


@rule("D1: two blocking streams through the legacy stream")
def d1_chain(t: Trace, ordered: bool) -> None:
    one, two = t.stream(blocking=True), t.stream(blocking=True)
    t.op(one, write=[X])
    if ordered:
        t.op(t.default, write=[(100, 101)])
    t.op(two, read=[X])


@rule("D1: a synchronisation of the legacy stream")
def d1_sync(t: Trace, ordered: bool) -> None:
    side = t.stream(blocking=ordered)
    t.op(side, write=[X], space=r.HOST)
    t.stream_sync(t.default)
    t.host(read=[X])


@rule("D2: a per-thread default stream is blocking")
def d2(t: Trace, ordered: bool) -> None:
    mine = t.stream(name="per-thread", blocking=ordered)
    t.op(mine, write=[X])
    t.op(t.default, read=[X])


@rule("M3: a free to the driver joins the device, an allocation does not")
def m3(t: Trace, ordered: bool) -> None:
    side = t.stream()
    t.op(side, write=[X])
    if ordered:
        t.device_sync(0, cause="M3")
    else:
        t.alloc(1000, 1064)
    t.op(t.default, read=[X])


@rule("G4: one executable graph")
def g4(t: Trace, ordered: bool) -> None:
    side = t.stream()
    t.op(t.default, update=[X], kind=r.OpKind.GRAPH_LAUNCH, graph=1)
    t.op(side, update=[X], kind=r.OpKind.GRAPH_LAUNCH, graph=1 if ordered else 2)


@rule("T1: start of a thread")
def t1_start(t: Trace, ordered: bool) -> None:
    if ordered:
        t.host(write=[X])
    worker = t.thread("worker", t.main)
    if not ordered:
        t.host(write=[X])
    t.host(worker, read=[X])


@rule("T1: hand-over")
def t1_hand_over(t: Trace, ordered: bool) -> None:
    worker = t.thread("worker", t.main)
    t.host(write=[X])
    t.hand_over(t.main, worker)
    if not ordered:
        t.host(write=[X])
    t.host(worker, read=[X])


@rule("T1: through that object")
def t1_object(t: Trace, ordered: bool) -> None:
    worker = t.thread("worker", t.main)
    t.host(write=[X])
    t.add(r.HostRelease(1, t.main))
    t.add(r.HostAcquire(1 if ordered else 2, worker))
    t.host(worker, read=[X])


@rule("T2: the caller of backward and the engine's thread")
def t2(t: Trace, ordered: bool) -> None:
    engine, side = t.thread("engine", t.main), t.stream()
    t.op(side, write=[X])
    t.stream_sync(side)
    if ordered:
        t.hand_over(t.main, engine, item=7)
    t.op(t.default, read=[X], thread=engine, node="MulBackward0")


@pytest.mark.parametrize("identity", RULES)
def test_rule(identity: str) -> None:
    racing, clean = Trace(), Trace()
    RULES[identity](racing, False)
    RULES[identity](clean, True)
    assert len(racing.races()) == 1
    assert clean.races() == []


def test_a_stream_made_after_a_synchronisation_comes_after_it() -> None:
    t = Trace()
    t.op(t.default, write=[X])
    t.device_sync()
    late = t.stream()
    t.op(late, read=[X])
    assert t.races() == []


def test_work_of_one_thread_takes_over_what_others_handed_to_it_once() -> None:
    """The shortcut of S3 (only the thread's own epoch is new) loses no order."""
    t = Trace()
    side, worker = t.stream(), t.thread("worker", t.main)
    t.op(side, write=[X], space=r.HOST)
    t.stream_sync(side, thread=worker)
    t.hand_over(worker, t.main)
    t.op(t.default, write=[(100, 101)])
    t.host(write=[(200, 264)])
    t.op(t.default, read=[X, (200, 264)], space=r.HOST)
    assert t.races() == []
