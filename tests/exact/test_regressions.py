"""Programs on which the checker and the executions once disagreed."""

from __future__ import annotations

import pytest

from streamsan.detect import _shadow
from streamsan.model import records as r
from tests.exact.oracle import latent, races
from tests.hard.test_pieces import as_json, in_pieces, whole
from tests.unit.builder import Trace

X, Y = (0, 64), (64, 128)


def given_up(*, blocking: bool) -> Trace:
    """A block of the default stream, used on another one, and given up."""
    t = Trace()
    side = t.stream(blocking=blocking, line=1)
    block = t.alloc(*X, line=2)
    t.op(side, read=[X], line=5)
    t.free(block, line=20)
    return t


@pytest.mark.parametrize("blocking", [False, True])
def test_the_legacy_stream_needs_no_wait_before_it_reuses_a_block(blocking: bool) -> None:
    """Rule D1: whatever the default stream does next comes after a blocking stream's use."""
    t = given_up(blocking=blocking)
    assert t.latent() == ([] if blocking else [(5, 20)])
    assert set(t.latent()) == latent(t.records)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_wait_before_the_reuse_may_come_from_the_legacy_stream(blocking: bool) -> None:
    """Rule D1: a blocking stream that takes the bytes comes after what the default stream did."""
    t = Trace()
    owner, user = t.stream(line=1), t.stream(line=2)
    following = t.stream(blocking=blocking, line=3)
    block = t.alloc(*X, owner, line=4)
    t.op(user, read=[X], line=5)
    t.free(block, line=20)
    t.wait_stream(t.default, user, line=21)
    t.alloc(*X, following, line=22)
    assert t.latent() == ([] if blocking else [(5, 20)])
    assert set(t.latent()) == latent(t.records)


@pytest.mark.parametrize("marked", [False, True])
def test_a_recorded_stream_stands_for_those_it_has_waited_for(marked: bool) -> None:
    """Rule M2: the block comes back after all that the recorded stream comes after."""
    t = Trace()
    user, recorded = t.stream(line=1), t.stream(line=2)
    block = t.alloc(*X, line=3)
    t.op(user, read=[X], line=5)
    t.wait_stream(recorded, user, line=6)
    t.op(recorded, read=[Y], line=7)
    if marked:
        t.mark(block, recorded)
    t.free(block, line=20)
    assert t.latent() == ([] if marked else [(5, 20)])
    assert set(t.latent()) == latent(t.records)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_wait_for_the_legacy_stream_is_an_operation_of_its_thread(ordered: bool) -> None:
    """Rules D1, S3: blocking streams come after the thread that waited for the legacy stream."""
    t = Trace()
    blocking = t.stream(blocking=True, line=1)
    worker = t.thread("worker", t.main)
    t.host(worker, write=[X], space=0, line=5)
    if ordered:
        t.stream_sync(t.default, worker)
    t.op(blocking, kind=r.OpKind.KERNEL, write=[X], line=6)
    assert t.races() == ([] if ordered else [(5, 6)])
    assert set(t.races()) == races(t.records)


def test_pieces_tell_races_of_one_work_in_the_order_of_the_whole() -> None:
    """Two uses that one access met, one of them met in a share that is put first, too."""
    t = Trace()
    one, two = t.stream(line=1), t.stream(line=2)
    for _ in range(3):
        t.op(two, read=[Y], line=3)  # so that these bytes are the heavier share
    t.op(one, read=[X], line=24)
    t.op(two, read=[X, Y], line=25)
    t.op(t.default, write=[X, Y], line=27)
    assert [pair for pair in t.races() if pair[0] > 3] == [(24, 27), (25, 27)]
    assert as_json(in_pieces(t.records, 2)) == as_json(whole(t.records))


def test_pieces_tell_latent_races_of_one_free_in_the_order_of_the_whole() -> None:
    t = Trace()
    one, two = t.stream(line=1), t.stream(line=2)
    light, heavy = t.alloc(*X, line=10), t.alloc(*Y, line=11)
    for _ in range(5):
        t.op(two, read=[Y], line=25)
    t.op(one, read=[X], line=24)
    t.op(two, read=[X], line=25)
    t.free(light, line=30)
    t.free(heavy, line=30)
    assert t.latent() == [(24, 30), (25, 30)]
    assert as_json(in_pieces(t.records, 2)) == as_json(whole(t.records))


@pytest.mark.parametrize("other", [False, True])
def test_a_stream_that_waits_for_the_frontier_leaves_no_latent_race(other: bool) -> None:
    """Rule M6, `frontier`: the last owner takes the bytes at once, another stream behind all."""
    t = Trace()
    owner, user, following = (t.stream(line=line) for line in (1, 2, 3))
    block = t.alloc(*X, owner, allocator="bfc:frontier", line=4)
    t.op(user, read=[X], line=5)
    t.free(block, line=20)
    assert t.latent() == [(5, 20)]
    t.alloc(*X, following if other else owner, allocator="bfc:frontier", line=21)
    assert t.latent() == ([] if other else [(5, 20)])
    assert set(t.latent()) == latent(t.records)


def test_a_frontier_comes_after_what_every_user_of_the_block_has_waited_for() -> None:
    """Rules M6 and T1: a thread that used the block had given it up before the last one did."""
    t = Trace()
    user, far = t.stream(line=1), t.stream(device=1, line=2)
    worker = t.thread("worker", t.main)
    block = t.alloc(*X, user, allocator="bfc:frontier", line=3)
    t.op(far, read=[X], thread=worker, line=5)
    t.stream_sync(far, worker)
    t.mark(block, user)
    t.free(block, line=20)
    t.alloc(*X, t.default, allocator="bfc:frontier", line=21)
    t.op(t.default, write=[X], line=22)
    assert t.races() == []
    assert races(t.records) == set()


def test_a_free_in_stream_order_is_remembered_until_the_bytes_are_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule M4: the next owner's stream comes after it, however much memory is swept between."""
    monkeypatch.setattr(_shadow, "_SWEEP", 1)
    t = Trace()
    one, two = t.stream(line=1), t.stream(line=2)
    first = t.alloc(*X, one, allocator="stream-ordered", line=3)
    t.op(one, write=[Y], line=10)
    t.free(first, line=20)
    for place in range(200, 230, 2):
        t.op(one, read=[(place, place + 1)], line=11)
    t.alloc(*X, two, allocator="stream-ordered", line=21)
    t.op(two, read=[Y], line=22)
    assert t.races() == []
    assert races(t.records) == set()


@pytest.mark.parametrize("reused", [False, True])
def test_a_launch_on_freed_memory_is_no_owner_that_the_free_guards(reused: bool) -> None:
    """Rules M2, G2: the next owner waits for a recorded stream, a graph on its bytes does not."""
    t = Trace()
    user, other = t.stream(line=1), t.stream(line=2)
    block = t.alloc(*X, line=3)
    t.op(user, write=[X], line=5)
    t.mark(block, user)
    graph = t.begin_capture(other)
    assert graph is not None
    t.op(other, write=[X], graph=graph, captured=True, line=6)
    t.end_capture(graph)
    t.free(block, line=20)
    if reused:
        t.alloc(*X, line=21)
        t.op(t.default, write=[X], line=22)
    launched = t.launch(graph, other)
    assert set(t.races()) == {(22 if reused else 5, launched)}
    assert set(t.races()) == races(t.records)
