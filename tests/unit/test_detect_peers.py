"""Test cases of other stream checkers, re-expressed as traces.

The first list is that of the sanitizer in PyTorch (test/test_cuda_sanitizer.py); the second, that
of the record_stream checks in Ascend's torch_npu (test/npu/test_sanitizer_record_stream.py). The
comments number their cases.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamsan.model import records as r
from tests.unit.builder import Trace

X, Y = (0, 64), (64, 128)
Case = Callable[[Trace, int, int], None]


def empty(t: Trace, _a: int, _b: int) -> None:  # 1
    t.op(t.default)


def two_reads(t: Trace, a: int, b: int) -> None:  # 2
    t.op(a, read=[X])
    t.op(b, read=[X])


def read_then_write(t: Trace, a: int, b: int) -> None:  # 3
    t.op(a, read=[X])
    t.op(b, write=[X])


def ordered_read_then_write(t: Trace, a: int, b: int) -> None:  # 4
    t.op(a, read=[X])
    t.wait_stream(b, a)
    t.op(b, write=[X])


def last_write_not_last_read(t: Trace, a: int, b: int) -> None:  # 5, 6
    t.op(a, write=[X])
    t.wait_stream(b, a)
    t.op(b, read=[X])
    t.op(t.default, read=[X])


def two_readers(t: Trace, a: int, b: int) -> None:  # 7
    t.op(t.default, write=[X])
    t.record(1, t.default)
    for stream in (a, b):
        t.wait(1, stream)
        t.op(stream, read=[X])


def write_against_one_of_two_readers(t: Trace, a: int, b: int) -> None:  # 8
    two_readers(t, a, b)
    t.op(a, write=[X])


def chain(t: Trace, a: int, _b: int) -> None:  # 9
    t.op(a, read=[X])
    for _ in range(10):
        following = t.stream()
        t.wait_stream(following, a)
        a = following
    t.op(a, write=[X])


def old_record(t: Trace, a: int, b: int) -> None:  # 10
    t.record(1, a)
    t.op(a, read=[X])
    t.wait(1, b)
    t.op(b, write=[X])


def deleted_event(t: Trace, a: int, b: int) -> None:  # 11 to 13: no wait, or one for a new event
    t.op(a, read=[X])
    t.record(1, a)
    t.add(r.EventDestroy(1, t.main))
    t.wait(1, b)
    t.op(b, write=[X])


def readers(t: Trace, joined: int) -> None:
    streams = [t.stream() for _ in range(10)]
    for stream in streams:
        t.op(stream, read=[X])
    for stream in streams[:joined]:
        t.wait_stream(t.default, stream)
    t.op(t.default, write=[X])


def all_but_one_reader(t: Trace, _a: int, _b: int) -> None:  # 14
    readers(t, 9)


def all_readers(t: Trace, _a: int, _b: int) -> None:  # 15
    readers(t, 10)


def many_tensors(t: Trace, a: int, b: int) -> None:  # 16: ten pairs of bytes, one pair of lines
    tensors = [(64 * i, 64 * i + 64) for i in range(10)]
    t.op(a, read=tensors)
    t.op(b, write=tensors)


def merged_events(t: Trace, a: int, b: int) -> None:  # 17
    t.op(a, read=[X])
    t.op(b, read=[Y])
    middle = t.stream()
    t.wait_stream(middle, a)
    t.wait_stream(middle, b)
    t.wait_stream(t.default, middle)
    t.op(t.default, write=[X, Y])


def recorded_again_elsewhere(t: Trace, a: int, b: int) -> None:  # 18
    t.op(a, read=[X])
    t.record(1, a)
    t.op(b, read=[Y])
    t.record(1, b)
    t.wait(1, t.default)
    t.op(t.default, write=[X])


def synchronised_device(t: Trace, a: int, b: int) -> None:  # 20
    t.op(a, read=[X])
    t.device_sync()
    t.op(b, write=[X])


def write_after_synchronised_device(t: Trace, a: int, b: int) -> None:  # 21
    t.device_sync()
    t.op(a, write=[X])
    t.op(b, write=[X])


def stream_after_synchronised_device(t: Trace, a: int, _b: int) -> None:  # 22
    t.op(a, read=[X])
    t.device_sync()
    t.op(t.stream(), write=[X])


def synchronised_stream(t: Trace, a: int, b: int) -> None:  # 23
    t.op(a, write=[X])
    t.op(b, write=[Y])
    t.stream_sync(a)
    t.op(t.default, read=[X])
    t.op(t.default, read=[Y])


def synchronised_event(t: Trace, a: int, b: int) -> None:  # 24
    t.op(a, write=[X])
    t.record(1, a)
    t.op(a, write=[Y])
    t.event_sync(1)
    t.op(b, read=[X])
    t.op(b, read=[Y])


PYTORCH: list[tuple[Case, int]] = [
    (empty, 0), (two_reads, 0), (read_then_write, 1), (ordered_read_then_write, 0),
    (last_write_not_last_read, 1), (two_readers, 0), (write_against_one_of_two_readers, 1),
    (chain, 0), (old_record, 1), (deleted_event, 1), (all_but_one_reader, 1), (all_readers, 0),
    (many_tensors, 1), (merged_events, 0), (recorded_again_elsewhere, 1),
    (synchronised_device, 0), (write_after_synchronised_device, 1),
    (stream_after_synchronised_device, 0), (synchronised_stream, 1), (synchronised_event, 1),
]  # fmt: skip


@pytest.mark.parametrize(("case", "races"), PYTORCH, ids=[c.__name__ for c, _ in PYTORCH])
def test_pytorch(case: Case, races: int) -> None:
    t = Trace()
    case(t, t.stream(), t.stream())
    assert len(t.races()) == races


# torch_npu


def unordered(t: Trace, a: int, _b: int) -> None:  # 1
    block = t.alloc(*X)
    t.op(t.default, write=[X])
    t.op(a, read=[X])
    t.wait_stream(t.default, a)
    t.free(block)


def unordered_but_marked(t: Trace, a: int, _b: int) -> None:  # 2
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


def one_user(t: Trace, a: int, _b: int) -> None:  # 3, 12
    t.free(used(t, a))


def two_users(t: Trace, a: int, b: int) -> None:  # 4
    t.free(used(t, a, b))


def marked(t: Trace, a: int, _b: int) -> None:  # 5, 13, 14: marks are kept by block
    block = used(t, a)
    t.mark(block, a)
    t.free(block)


def creator_waits_for_stream(t: Trace, a: int, _b: int) -> None:  # 6
    block = used(t, a)
    t.wait_stream(t.default, a)
    t.free(block)


def creator_waits_for_event(t: Trace, a: int, _b: int) -> None:  # 7
    block = used(t, a)
    t.record(1, a)
    t.wait(1, t.default)
    t.free(block)


def device_synchronised(t: Trace, a: int, _b: int) -> None:  # 8
    block = used(t, a)
    t.device_sync()
    t.free(block)


def creator_waits_in_between(t: Trace, a: int, _b: int) -> None:  # 9
    block = used(t, a)
    t.wait_stream(t.default, a)
    t.op(a, read=[X])
    t.free(block)


def creator_waits_for_an_early_event(t: Trace, a: int, _b: int) -> None:  # 10
    block = used(t, a)
    t.record(1, a)
    t.op(a, read=[X])
    t.wait(1, t.default)
    t.free(block)


def one_of_two_marked(t: Trace, a: int, b: int) -> None:  # 11
    block = used(t, a, b)
    t.mark(block, a)
    t.free(block)


def second_tenant(t: Trace, a: int, _b: int) -> None:  # 15
    marked(t, a, a)
    t.free(used(t, a))


def second_tenant_marked(t: Trace, a: int, _b: int) -> None:  # 16
    marked(t, a, a)
    marked(t, a, a)


TORCH_NPU: list[tuple[Case, int, int]] = [
    (unordered, 1, 0), (unordered_but_marked, 1, 0), (one_user, 0, 1), (two_users, 0, 2),
    (marked, 0, 0), (creator_waits_for_stream, 0, 0), (creator_waits_for_event, 0, 0),
    (device_synchronised, 0, 0), (creator_waits_in_between, 0, 1),
    (creator_waits_for_an_early_event, 0, 1), (one_of_two_marked, 0, 1), (second_tenant, 0, 1),
    (second_tenant_marked, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "races", "latent"), TORCH_NPU, ids=[c.__name__ for c, _, _ in TORCH_NPU]
)
def test_torch_npu(case: Case, races: int, latent: int) -> None:
    t = Trace()
    case(t, t.stream(), t.stream())
    assert (len(t.races()), len(t.latent())) == (races, latent)
