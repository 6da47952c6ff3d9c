"""How reuse of memory is judged by the rule of its allocator: M6 by policy, and the quarantine."""

from __future__ import annotations

import pytest

from streamsan.model.records import NONE
from tests.unit.builder import Trace

X = (4096, 8192)
LOW, HIGH = (4096, 6144), (6144, 8192)


def reuse(policy: str, *, foreign: bool = True, marked: bool = False, join: bool = False) -> Trace:
    """The default stream's block is given up and handed out again, to another stream or its own."""
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator=f"bfc:{policy}")
    t.op(t.default, read=[X], line=10)
    if marked:
        t.mark(block, side)
    if join:
        t.device_sync(cause="M6")
    t.free(block, line=12)
    t.alloc(*X, side if foreign else t.default, allocator=f"bfc:{policy}")
    t.op(side if foreign else t.default, write=[X], line=20)
    return t


def test_m6_async_orders_no_reuse_by_another_stream() -> None:
    t = reuse("async")
    assert t.races() == [(10, 20)]
    (race,) = t.report().races
    assert race.kind == "R03-ALLOC-REUSE"
    assert race.memory.allocator == "bfc:async"
    assert "for which the arena waits for nothing" in race.missing_edge
    assert race.repair == [
        "side.wait_stream(torch.cuda.default_stream()) before train.py:20",
        "or let the arena order it: --allocator bfc:event, bfc:frontier or bfc:host-sync",
    ]


def test_m6_async_is_safe_for_the_stream_itself() -> None:
    assert reuse("async", foreign=False).races() == []


def test_m6_async_knows_no_recorded_streams() -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator="bfc:async")
    t.wait_stream(side, t.default)
    t.op(side, read=[X], line=10)
    t.mark(block, side)
    t.free(block, line=12)
    assert t.latent() == [(10, 12)]
    assert t.report().latent[0].repair == [
        "side.synchronize() before train.py:12",
        "or let the arena order it: --allocator bfc:event, bfc:frontier or bfc:host-sync",
    ]
    t.alloc(*X, allocator="bfc:async")
    t.op(t.default, write=[X], line=20)
    assert t.races() == [(10, 20)]
    assert t.latent() == []


def test_m6_host_sync_joins_the_device_at_the_free() -> None:
    assert reuse("host-sync", join=True).races() == []


def test_m6_frontier_orders_other_streams_after_all_until_the_free() -> None:
    assert reuse("frontier").races() == []


def test_m6_frontier_gives_the_owner_its_chunk_at_once() -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator="bfc:frontier")
    t.wait_stream(side, t.default)
    t.op(side, read=[X], line=10)
    t.free(block, line=12)
    assert t.latent() == [(10, 12)]
    t.alloc(*X, allocator="bfc:frontier")
    t.op(t.default, write=[X], line=20)
    assert t.races() == [(10, 20)]


def test_m6_frontier_holds_a_recorded_chunk_back_from_its_owner() -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator="bfc:frontier")
    t.wait_stream(side, t.default)
    t.op(side, read=[X])
    t.mark(block, side)
    t.free(block)
    t.alloc(*X, allocator="bfc:frontier")
    t.op(t.default, write=[X])
    assert (t.races(), t.latent()) == ([], [])


def test_m6_frontier_guards_the_block_and_not_the_host() -> None:
    t = Trace()
    side = t.stream("side")
    other = t.alloc(8192, 12288, allocator="bfc:frontier")
    t.op(t.default, write=[(8192, 12288)], line=5)
    block = t.alloc(*X, allocator="bfc:frontier")
    t.free(block)
    t.alloc(*X, side, allocator="bfc:frontier")
    t.op(side, read=[(8192, 12288)], line=20)
    assert t.races() == [(5, 20)]
    assert other != block


def test_m6_frontier_is_passed_by_the_bytes_that_move_and_no_others() -> None:
    t = Trace()
    side, third = t.stream("side"), t.stream("third")
    block = t.alloc(*X, allocator="bfc:frontier")
    t.wait_stream(third, t.default)
    t.op(third, read=[X], line=10)
    t.free(block)
    t.alloc(*LOW, side, allocator="bfc:frontier")
    t.op(side, write=[LOW], line=20)
    t.alloc(*HIGH, allocator="bfc:frontier")
    t.op(t.default, write=[HIGH], line=21)
    assert t.races() == [(10, 21)]


@pytest.mark.parametrize("waits", [False, True])
def test_m6_event_is_an_order_of_the_next_owner(waits: bool) -> None:
    t = Trace()
    side, third = t.stream("side"), t.stream("third")
    block = t.alloc(*X, allocator="bfc:event")
    t.op(t.default, read=[X], line=10)
    t.record(1, t.default, line=12)
    t.free(block, line=12)
    if waits:
        t.wait(1, side, line=13)
    t.alloc(*X, side, allocator="bfc:event", line=13)
    t.op(side, write=[X], line=20)
    t.op(third, read=[X], line=30)
    assert ((10, 20) in t.races()) != waits
    assert (20, 30) in t.races()
    assert t.latent() == []


def test_m6_event_leaves_nothing_latent() -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator="bfc:event")
    t.wait_stream(side, t.default)
    t.op(side, read=[X])
    t.record(1, side)
    t.record(2, t.default)
    t.free(block)
    assert t.latent() == []


@pytest.mark.parametrize("safe", ["no", "marked", "ordered"])
def test_quarantine_poison_races_with_a_late_reader(safe: str) -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator="quarantine", line=5)
    t.op(t.default, write=[X])
    t.wait_stream(side, t.default)
    t.op(side, read=[X], line=10)
    if safe == "marked":
        t.mark(block, side)
    if safe == "ordered":
        t.wait_stream(t.default, side)
    t.free(block, line=12)
    assert t.races() == ([(10, 12)] if safe == "no" else [])
    assert t.latent() == []
    if safe == "no":
        (race,) = t.report().races
        assert race.kind == "R03-ALLOC-REUSE"
        assert race.repair[0] == "tensor.record_stream(side) before train.py:12"


def test_quarantine_hands_out_what_nothing_can_use() -> None:
    t = Trace()
    side = t.stream("side")
    block = t.alloc(*X, allocator="quarantine")
    t.op(t.default, write=[X])
    t.free(block)
    t.alloc(*X, side, allocator="quarantine")
    t.op(side, write=[X])
    assert t.races() == []


def test_last_use_of_a_reused_chunk_is_told_first() -> None:
    t = Trace()
    side = t.stream("side")
    for line in (10, 11, 12):
        block = t.alloc(*X, allocator="bfc:async")
        t.op(t.default, update=[X], line=line)
        t.free(block)
    t.alloc(*X, side, allocator="bfc:async")
    t.op(side, write=[X], line=20)
    assert t.races()[0] == (12, 20)
    assert NONE not in [line for pair in t.races() for line in pair]
