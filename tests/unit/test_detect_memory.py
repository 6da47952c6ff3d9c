"""Memory rules (M, G of docs/rules.md), latent races and misuse, each by runs that differ in it."""

from __future__ import annotations

import pytest

from streamsan.model import records as r
from tests.unit.builder import Trace

X = (0, 64)


def reuse(t: Trace, *, mark: bool = False, join: bool = False, allocator: str = "caching") -> None:
    """A block of the default stream, used on `side`, given up and handed out again."""
    side = t.stream(line=1)
    block = t.alloc(*X, line=2, target="batch", allocator=allocator)
    t.op(t.default, write=[X], line=3)
    t.wait_stream(side, t.default, line=4)
    t.op(side, read=[X], line=5)
    if mark:
        t.mark(block, side)
    if join:
        t.wait_stream(t.default, side)
    t.free(block, line=20)
    t.alloc(*X, line=21, allocator=allocator)
    t.op(t.default, write=[X], line=22)


@pytest.mark.parametrize("allocator", ["caching", "bfc:async"])
def test_m1_m6_reuse_gives_no_order(allocator: str) -> None:
    t = Trace()
    reuse(t, allocator=allocator)
    assert t.races() == [(5, 22)]
    assert t.report().races[0].kind == "R03-ALLOC-REUSE"
    assert t.latent() == []  # the race tells it


@pytest.mark.parametrize("repair", ["mark", "join"])
def test_m2_a_marked_or_joined_block_is_safe(repair: str) -> None:
    t = Trace()
    reuse(t, mark=repair == "mark", join=repair == "join")
    assert (t.races(), t.latent()) == ([], [])


@pytest.mark.parametrize("allocator", ["caching", "bfc:async", "stream-ordered", "quarantine"])
@pytest.mark.parametrize("waits", [True, False])
def test_t1_each_thread_gives_its_reference_up_before_the_last(waits: bool, allocator: str) -> None:
    t = Trace()
    side, user = t.stream(), t.thread("user", parent=t.main)
    block = t.alloc(*X, allocator=allocator)
    t.wait_stream(side, t.default)
    t.op(side, write=[X], line=10, thread=user)
    t.op(side, read=[X], line=11)  # enqueued by the thread that frees it later
    if waits:
        t.stream_sync(side, thread=user)
    t.free(block, line=12)
    t.alloc(*X, line=13, allocator=allocator)
    t.op(t.default, write=[X], line=14)
    assert bool(t.races()) != waits


def test_m2_covers_work_up_to_the_free_only() -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.mark(block, side)
    t.op(side, write=[X], line=10)
    t.free(block)
    t.op(side, write=[X], line=11)  # a dangling pointer
    t.alloc(*X)
    t.op(t.default, write=[X], line=12)
    assert t.races() == [(11, 12)]


def test_m2_a_mark_is_no_order_while_the_block_lives() -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.mark(block, side)
    t.op(t.default, write=[X], line=10)
    t.op(side, read=[X], line=11)
    assert t.races() == [(10, 11)]


def test_m2_a_mark_ends_with_its_block() -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.mark(block, side)
    t.free(block)
    second = t.alloc(*X)
    t.op(side, read=[X], line=10)
    t.free(second)
    t.alloc(*X)
    t.op(t.default, write=[X], line=11)
    assert t.races() == [(10, 11)]


@pytest.mark.parametrize("ordered", [False, True])
def test_m4_use_after_allocation(ordered: bool) -> None:
    t = Trace()
    side = t.stream()
    t.alloc(*X, allocator="stream-ordered", line=10)
    if ordered:
        t.wait_stream(side, t.default)
    t.op(side, write=[X], line=20)
    assert t.races() == ([] if ordered else [(10, 20)])


@pytest.mark.parametrize("ordered", [False, True])
def test_m4_use_before_free(ordered: bool) -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X, allocator="stream-ordered")
    t.wait_stream(side, t.default)
    t.op(side, write=[X], line=20)
    if ordered:
        t.wait_stream(t.default, side)
    t.free(block, line=30)
    report = t.report()
    assert t.races() == ([] if ordered else [(20, 30)])
    assert [race.kind for race in report.races] == ([] if ordered else ["R03-ALLOC-REUSE"])


def test_m4_the_driver_orders_the_next_owner() -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X, allocator="stream-ordered")
    t.op(t.default, write=[X])
    t.free(block)
    t.alloc(*X, side, allocator="stream-ordered")
    t.op(side, write=[X])
    assert t.races() == []


@pytest.mark.parametrize("marked", [False, True])
def test_m5_pinned_blocks(marked: bool) -> None:
    t = Trace()
    block = t.alloc(*X, r.NONE, allocator="pinned", space=r.HOST)
    t.op(t.default, read=[X], space=r.HOST, line=10)
    if marked:
        t.mark(block, t.default)
    t.free(block)
    t.alloc(*X, r.NONE, allocator="pinned", space=r.HOST)
    t.host(write=[X], line=20)
    assert t.races() == ([] if marked else [(10, 20)])
    assert t.latent() == []  # host memory


def test_m5_protects_no_live_buffer() -> None:
    t = Trace()
    block = t.alloc(*X, r.NONE, allocator="pinned", space=r.HOST)
    t.op(t.default, read=[X], space=r.HOST, line=10)
    t.mark(block, t.default)
    t.host(write=[X], line=20)
    assert t.races() == [(10, 20)]


@pytest.mark.parametrize("joined", [False, True])
def test_g1_capture_is_checked_within_itself(joined: bool) -> None:
    t = Trace()
    side = t.stream()
    t.op(side, write=[X], line=1)  # not part of the capture, and never against it
    t.device_sync()
    t.op(t.default, write=[X], graph=1, captured=True, line=10)
    t.record(1, t.default, captured=1)
    t.wait(1, side, captured=1)
    t.op(side, write=[X], graph=1, captured=True, line=11)
    if joined:
        t.record(2, side, captured=1)
        t.wait(2, t.default, captured=1)
    t.op(t.default, read=[X], graph=1, captured=True, line=12)
    report = t.report()
    assert t.races() == ([] if joined else [(11, 12)])
    assert [race.kind for race in report.races] == ([] if joined else ["R13-GRAPH-REPLAY"])


def test_g1_captured_work_is_no_use_of_memory() -> None:
    t = Trace()
    side = t.stream()
    t.op(t.default, write=[X], graph=1, captured=True)
    t.op(side, write=[X])
    assert t.races() == []


def test_g2_a_launch_is_one_operation_of_its_stream() -> None:
    t = Trace()
    side = t.stream()
    t.op(t.default, read=[X], write=[(64, 128)], update=[X], line=10,
         kind=r.OpKind.GRAPH_LAUNCH, graph=1)  # fmt: skip
    t.op(side, read=[(64, 128)], line=11)
    (race,) = t.report().races
    assert (race.kind, race.hazard) == ("R13-GRAPH-REPLAY", "read-after-write")


@pytest.mark.parametrize("destroyed", [False, True])
def test_g3_a_private_pool_belongs_to_its_graph(destroyed: bool) -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X, graph=1)
    t.op(side, read=[X], line=10)
    if destroyed:
        t.add(r.GraphDestroy(1, t.main))
    t.free(block, line=20)
    assert t.latent() == ([(10, 20)] if destroyed else [])


# Latent races: the truth table of the rules, for a block of the default stream used on `side`.


@pytest.mark.parametrize(
    ("user_waits", "owner_waits", "races", "latent"),
    [
        pytest.param(False, False, [(10, 11)], [(11, 20)], id="neither"),
        pytest.param(True, False, [], [(11, 20)], id="user only"),
        pytest.param(False, True, [(10, 11)], [], id="owner only"),
        pytest.param(True, True, [], [], id="both"),
    ],
)
def test_truth_table(
    user_waits: bool, owner_waits: bool, races: list[object], latent: list[object]
) -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.op(t.default, write=[X], line=10)
    if user_waits:
        t.wait_stream(side, t.default)
    t.op(side, read=[X], line=11)
    if owner_waits:
        t.wait_stream(t.default, side)
    t.free(block, line=20)
    t.device_sync()  # too late to make the free safe
    assert (t.races(), t.latent()) == (races, latent)


@pytest.mark.parametrize("synchronised", [False, True])
def test_a_host_synchronisation_before_the_free_makes_it_safe(synchronised: bool) -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.op(side, read=[X], line=11)
    if synchronised:
        t.stream_sync(side)
    t.free(block, line=20)
    assert t.latent() == ([] if synchronised else [(11, 20)])


@pytest.mark.parametrize("joined", [False, True])
def test_an_order_between_free_and_reuse_makes_it_safe(joined: bool) -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.op(side, read=[X], line=11)
    t.free(block, line=20)
    if joined:
        t.wait_stream(t.default, side)
    t.alloc(*X)
    t.wait_stream(t.default, side)  # after the reuse: too late
    assert t.latent() == ([] if joined else [(11, 20)])


def test_one_latent_race_for_each_unsafe_user() -> None:
    t = Trace()
    first, second, third = t.stream(), t.stream(), t.stream()
    block = t.alloc(*X)
    t.op(first, read=[X], line=10)
    t.op(second, read=[X], line=11)
    t.op(third, read=[X], line=12)
    t.op(third, read=[X], line=13)
    t.mark(block, first)
    t.free(block, line=20)
    assert t.latent() == [(11, 20), (13, 20)]


def test_a_latent_race_of_lines_that_also_race_is_told_once() -> None:
    t = Trace()
    side = t.stream()
    for _ in range(3):  # the last round leaves a block that nothing takes
        block = t.alloc(*X, line=5)
        t.op(t.default, write=[X], line=6)
        t.wait_stream(side, t.default, line=7)
        t.op(side, read=[X], line=8)
        t.free(block, line=9)
    report = t.report()
    assert t.races() == [(8, 6)]
    assert report.races[0].count == 2
    assert report.latent == []


def test_misuse_marking_the_owner() -> None:
    t = Trace()
    side = t.stream("copy_stream")
    block = t.alloc(*X)
    t.op(side, read=[X], line=10)
    t.mark(block, t.default)
    t.free(block)
    (misuse,) = t.report().misuse
    assert misuse.kind == "R03-ALLOC-REUSE"
    assert misuse.repair == ["name the stream that uses the block: record_stream(copy_stream)"]


def test_marking_the_owner_as_well_is_no_misuse() -> None:
    t = Trace()
    side = t.stream()
    block = t.alloc(*X)
    t.op(side, read=[X], line=10)
    t.mark(block, t.default)
    t.mark(block, side)
    t.free(block)
    assert t.report().misuse == []


def test_misuse_waiting_for_an_event_never_recorded() -> None:
    t = Trace()
    for _ in range(2):
        t.wait(1, t.default, line=10)
    t.record(1, t.default)
    t.wait(1, t.default, line=11)
    (misuse,) = t.report().misuse
    assert (misuse.kind, misuse.count) == ("R05-EVENT-MISUSE", 2)
    assert misuse.first.site is not None
    assert misuse.first.site.line == 10


def test_misuse_that_the_recorder_saw() -> None:
    t = Trace()
    t.add(r.Misuse("R17-STREAM-IDENTITY", "two objects, one stream", t.main, t.stack(10)))
    (misuse,) = t.report().misuse
    assert (misuse.kind, misuse.missing_edge) == ("R17-STREAM-IDENTITY", "two objects, one stream")


# Uses of former owners, and of the present one


def tenants(t: Trace, *, both: bool, present: r.Mode = r.Mode.WRITE) -> None:
    """A stream writes a block on line 5 and, with `both`, uses its next tenant on line 6."""
    side = t.stream(line=1)
    block = t.alloc(*X, stream=side, line=2)
    t.op(side, write=[X], line=5)
    t.free(block, line=3)
    t.alloc(*X, stream=side, line=4)
    if both and present == r.Mode.WRITE:
        t.op(side, write=[X], line=6)
    elif both:
        t.op(side, read=[X], line=6)
    t.op(t.default, read=[X], line=7)


def test_a_former_owners_use_is_left_out_where_the_present_owners_tells_it() -> None:
    t = Trace()
    tenants(t, both=True)
    assert t.races() == [(6, 7)]
    assert t.report().races[0].kind == "R01-PROD-CONS"


@pytest.mark.parametrize("both", [False, True])
def test_a_former_owners_use_is_told_where_no_present_use_conflicts(both: bool) -> None:
    t = Trace()
    tenants(t, both=both, present=r.Mode.READ)
    assert t.races() == [(5, 7)]
    assert t.report().races[0].kind == "R03-ALLOC-REUSE"


@pytest.mark.parametrize("reuse_first", [False, True])
def test_reuse_does_not_tell_a_race_that_happens_without_it(reuse_first: bool) -> None:
    t = Trace()
    side = t.stream(line=1)
    kept = t.alloc(0, 64, line=2)
    given_up = t.alloc(64, 128, line=2)
    t.op(side, read=[(0, 64), (64, 128)], line=5)
    t.free(given_up, line=3)
    t.alloc(64, 128, line=2)
    for place in [(64, 128), (0, 64)] if reuse_first else [(0, 64), (64, 128)]:
        t.op(t.default, write=[place], line=6)
    t.free(kept, line=4)
    (race,) = t.report().races
    assert (race.kind, race.count) == ("R02-SLOT-WAR", 2)
    assert race.memory.freed is None
