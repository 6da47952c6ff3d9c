"""The tests of the stream sanitizer in PyTorch: test/test_cuda_sanitizer.py."""

from __future__ import annotations

from collections.abc import Callable

from streamsan.model import records as r
from tests.peers.case import CLEAN, RACE, Cases
from tests.peers.cuda import Cuda
from tests.unit.builder import Trace

X, Y = (0, 64), (64, 128)
Body = Callable[[Trace, int, int], None]
"""A case on two fresh streams."""


def empty(t: Trace, _a: int, _b: int) -> None:
    t.op(t.default)


def two_reads(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.op(b, read=[X])


def read_then_write(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.op(b, write=[X])


def ordered_read_then_write(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.wait_stream(b, a)
    t.op(b, write=[X])


def last_write_not_last_read(t: Trace, a: int, b: int) -> None:
    t.op(a, write=[X])
    t.wait_stream(b, a)
    t.op(b, read=[X])
    t.op(t.default, read=[X])


def two_readers(t: Trace, a: int, b: int) -> None:
    t.op(t.default, write=[X])
    t.record(1, t.default)
    for stream in (a, b):
        t.wait(1, stream)
        t.op(stream, read=[X])


def write_against_one_of_two_readers(t: Trace, a: int, b: int) -> None:
    two_readers(t, a, b)
    t.op(a, write=[X])


def chain(t: Trace, a: int, _b: int) -> None:
    t.op(a, read=[X])
    for _ in range(10):
        following = t.stream()
        t.wait_stream(following, a)
        a = following
    t.op(a, write=[X])


def old_record(t: Trace, a: int, b: int) -> None:
    t.record(1, a)
    t.op(a, read=[X])
    t.wait(1, b)
    t.op(b, write=[X])


def deleted_event(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.record(1, a)
    t.add(r.EventDestroy(1, t.main))
    t.op(b, write=[X])


def deleted_and_made_again(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.record(1, a)
    t.add(r.EventDestroy(1, t.main))
    t.wait(1, b)
    t.op(b, write=[X])


def made_after_the_record(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.record(1, a)
    t.wait(2, b)
    t.op(b, write=[X])


def readers(t: Trace, joined: int) -> None:
    streams = [t.stream() for _ in range(10)]
    for stream in streams:
        t.op(stream, read=[X])
    for stream in streams[:joined]:
        t.wait_stream(t.default, stream)
    t.op(t.default, write=[X])


def all_but_one_reader(t: Trace, _a: int, _b: int) -> None:
    readers(t, 9)


def all_readers(t: Trace, _a: int, _b: int) -> None:
    readers(t, 10)


def many_tensors(t: Trace, a: int, b: int) -> None:
    tensors = [(64 * i, 64 * i + 64) for i in range(10)]
    t.op(a, read=tensors)
    t.op(b, write=tensors)


def merged_events(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.op(b, read=[Y])
    middle = t.stream()
    t.wait_stream(middle, a)
    t.wait_stream(middle, b)
    t.wait_stream(t.default, middle)
    t.op(t.default, write=[X, Y])


def recorded_again_elsewhere(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.record(1, a)
    t.op(b, read=[Y])
    t.record(1, b)
    t.wait(1, t.default)
    t.op(t.default, write=[X])


def synchronised_device(t: Trace, a: int, b: int) -> None:
    t.op(a, read=[X])
    t.device_sync()
    t.op(b, write=[X])


def write_after_synchronised_device(t: Trace, a: int, b: int) -> None:
    t.device_sync()
    t.op(a, write=[X])
    t.op(b, write=[X])


def stream_after_synchronised_device(t: Trace, a: int, _b: int) -> None:
    t.op(a, read=[X])
    t.device_sync()
    t.op(t.stream(), write=[X])


def synchronised_stream(t: Trace, a: int, b: int) -> None:
    t.op(a, write=[X])
    t.op(b, write=[Y])
    t.stream_sync(a)
    t.op(t.default, read=[X])
    t.op(t.default, read=[Y])


def synchronised_event(t: Trace, a: int, b: int) -> None:
    t.op(a, write=[X])
    t.record(1, a)
    t.op(a, write=[Y])
    t.event_sync(1)
    t.op(b, read=[X])
    t.op(b, read=[Y])


PYTORCH = Cases("PyTorch's CUDA sanitizer", "pytorch/pytorch, test/test_cuda_sanitizer.py")


def _streams(body: Body) -> Callable[[Cuda], None]:
    return lambda c: body(c.trace, c.stream(blocking=False), c.stream(blocking=False))


for _name, _text, _body, _expected in [
    ("1", "launch without arguments", empty, CLEAN),
    ("2", "two streams read", two_reads, CLEAN),
    ("3", "read on one stream, write on another", read_then_write, RACE),
    ("4", "the same with an event in between", ordered_read_then_write, CLEAN),
    (
        "5, 6",
        "write, ordered read, unordered read",
        last_write_not_last_read,
        RACE,
    ),
    ("7, 19", "two streams wait for one event and read", two_readers, CLEAN),
    ("8", "then one of them writes", write_against_one_of_two_readers, RACE),
    ("9", "a chain of ten events", chain, CLEAN),
    ("10", "wait for a record that is older than the read", old_record, RACE),
    ("11", "event deleted, no wait", deleted_event, RACE),
    ("12", "event deleted and made again, waited for", deleted_and_made_again, RACE),
    ("13", "wait for an event made after the record", made_after_the_record, RACE),
    ("14", "ten readers, nine waited for", all_but_one_reader, RACE),
    ("15", "ten readers, all waited for", all_readers, CLEAN),
    ("16", "ten tensors race in one operation", many_tensors, "race x10"),
    ("17", "the orders of two events merged", merged_events, CLEAN),
    ("18", "event recorded again on another stream", recorded_again_elsewhere, RACE),
    ("20", "device synchronize", synchronised_device, CLEAN),
    ("21", "writes after a device synchronize", write_after_synchronised_device, RACE),
    ("22", "stream made after a device synchronize", stream_after_synchronised_device, CLEAN),
    ("23", "synchronize of one stream of two", synchronised_stream, RACE),
    ("24", "event synchronize covers what came before the record only", synchronised_event, RACE),
]:
    _why = "one pair of lines, however many tensors" if _expected == "race x10" else ""
    PYTORCH.case(_name, _text, _expected, differs=_why)(_streams(_body))
