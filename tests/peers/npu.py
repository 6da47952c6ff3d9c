"""The record_stream tests of Ascend's torch_npu: test/npu/test_sanitizer_record_stream.py."""

from __future__ import annotations

from collections.abc import Callable

from tests.peers.case import CLEAN, LATENT, RACE, Cases
from tests.peers.cuda import Cuda
from tests.unit.builder import Trace

X = (0, 64)
Body = Callable[[Trace, int, int], None]
"""A case on two fresh streams."""


def unordered(t: Trace, a: int, _b: int) -> None:
    block = t.alloc(*X)
    t.op(t.default, write=[X])
    t.op(a, read=[X])
    t.wait_stream(t.default, a)
    t.free(block)


def unordered_but_marked(t: Trace, a: int, _b: int) -> None:
    block = t.alloc(*X)
    t.op(t.default, write=[X])
    t.op(a, read=[X])
    t.mark(block, a)
    t.free(block)


def used(t: Trace, *streams: int) -> int:
    block = t.alloc(*X)
    t.op(t.default, write=[X])
    for stream in streams:
        t.wait_stream(stream, t.default)
        t.op(stream, read=[(16, 32)])  # through a view, 12
    return block


def one_user(t: Trace, a: int, _b: int) -> None:
    t.free(used(t, a))


def two_users(t: Trace, a: int, b: int) -> None:
    t.free(used(t, a, b))


def marked(t: Trace, a: int, _b: int) -> None:
    block = used(t, a)
    t.mark(block, a)
    t.free(block)


def creator_waits_for_stream(t: Trace, a: int, _b: int) -> None:
    block = used(t, a)
    t.wait_stream(t.default, a)
    t.free(block)


def creator_waits_for_event(t: Trace, a: int, _b: int) -> None:
    block = used(t, a)
    t.record(1, a)
    t.wait(1, t.default)
    t.free(block)


def device_synchronised(t: Trace, a: int, _b: int) -> None:
    block = used(t, a)
    t.device_sync()
    t.free(block)


def creator_waits_in_between(t: Trace, a: int, _b: int) -> None:
    block = used(t, a)
    t.wait_stream(t.default, a)
    t.op(a, read=[X])
    t.free(block)


def creator_waits_for_an_early_event(t: Trace, a: int, _b: int) -> None:
    block = used(t, a)
    t.record(1, a)
    t.op(a, read=[X])
    t.wait(1, t.default)
    t.free(block)


def one_of_two_marked(t: Trace, a: int, b: int) -> None:
    block = used(t, a, b)
    t.mark(block, a)
    t.free(block)


def second_tenant(t: Trace, a: int, _b: int) -> None:
    marked(t, a, a)
    t.free(used(t, a))


def second_tenant_marked(t: Trace, a: int, _b: int) -> None:
    marked(t, a, a)
    marked(t, a, a)


TORCH_NPU = Cases(
    "torch_npu's sanitizer", "Ascend/pytorch, test/npu/test_sanitizer_record_stream.py"
)


def _streams(body: Body) -> Callable[[Cuda], None]:
    return lambda c: body(c.trace, c.stream(blocking=False), c.stream(blocking=False))


for _name, _text, _body, _expected in [
    ("1", "write and read on two streams, no order", unordered, RACE),
    ("2", "the same with record_stream, which orders no access", unordered_but_marked, RACE),
    ("3, 12", "used on another stream (a view, too), given up unrecorded", one_user, LATENT),
    ("4", "used on two other streams, neither recorded", two_users, "latent x2"),
    ("5, 13, 14", "recorded; through base or view", marked, CLEAN),
    ("6", "the creator waits for the user", creator_waits_for_stream, CLEAN),
    ("7", "the creator waits for an event of the user", creator_waits_for_event, CLEAN),
    ("8", "device synchronize before the free", device_synchronised, CLEAN),
    ("9", "the creator waits, later uses are not covered", creator_waits_in_between, LATENT),
    ("10", "the same with an event", creator_waits_for_an_early_event, LATENT),
    ("11", "two users, one recorded", one_of_two_marked, LATENT),
    ("15", "a new block at the same address inherits no record", second_tenant, LATENT),
    ("16", "a new block at the same address, recorded again", second_tenant_marked, CLEAN),
]:
    TORCH_NPU.case(_name, _text, _expected)(_streams(_body))
