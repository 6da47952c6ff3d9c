"""Records as bytes: what the compiled core writes by itself, and what it has encoded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsan.model import records as r
from streamsan.record import _core, _portable
from streamsan.trace import MAX_RAW, decode, encode_one, encode_plain
from tests.unit.cuda_world import World

needs_compiled = pytest.mark.skipif(not _core.compiled(), reason="the core is not compiled here")
NOTES = [r.Note("info", str(number)) for number in range(5)]


@pytest.fixture(params=["portable", pytest.param("compiled", marks=needs_compiled)])
def kind(request: pytest.FixtureRequest) -> Any:
    """The class, in Python or compiled."""
    module: Any = _portable if request.param == "portable" else vars(_core)["_compiled"]
    return module.Packed


def never() -> None:
    pytest.fail("it is not full")


def test_records_come_back_as_they_were(kind: Any) -> None:
    packed = kind(encode_plain, encode_one, never, MAX_RAW, 10)
    for note in NOTES:
        packed(note)
    assert len(packed) == 5
    assert decode(packed.whole()) == NOTES
    packed.clear()
    assert len(packed) == 0
    assert decode(packed.whole()) == []


def test_what_was_given_is_removed_and_what_came_since_stays(kind: Any) -> None:
    packed = kind(encode_plain, encode_one, never, MAX_RAW, 10)
    for note in NOTES[:2]:
        packed(note)
    packed.whole()
    for note in NOTES[2:]:
        packed(note)
    del packed[:2]
    assert decode(packed.whole()) == NOTES[2:]


@needs_compiled
def test_only_what_was_given_can_be_removed() -> None:
    packed = _core.Packed(encode_plain, encode_one, never, MAX_RAW, 10)
    packed(NOTES[0])
    packed.whole()
    with pytest.raises(ValueError, match="only what"):
        del packed[:2]


def test_it_says_when_it_is_full_until_some_are_removed(kind: Any) -> None:
    told: list[int] = []
    packed: Any = kind(encode_plain, encode_one, lambda: told.append(len(packed)), MAX_RAW, 3)
    for note in NOTES:
        packed(note)
    assert told == [3, 4, 5]
    packed.whole()
    del packed[:5]
    packed(NOTES[0])
    assert told == [3, 4, 5]


def test_what_the_first_way_cannot_do_the_other_does(kind: Any) -> None:
    other: list[Any] = []
    nothing = object()

    def otherwise(record: Any) -> bytes:
        other.append(record)
        return b"" if record is nothing else encode_one(record)

    packed = kind(encode_plain, otherwise, never, 100, 10)
    odd, large = r.Note("info", "\ud800"), r.Note("info", "x" * 100)
    for record in (odd, large, nothing):
        packed(record)
    assert other[:2] == [odd, large]
    assert decode(packed.whole())[1] == large


def test_an_exception_of_the_other_way_is_raised(kind: Any) -> None:
    packed = kind(lambda _: 1 / 0, lambda _: int("x"), never, MAX_RAW, 10)
    with pytest.raises(ValueError, match="invalid literal"):
        packed(NOTES[0])
    assert len(packed) == 0


BOUNDS = [0, 1, 31, 32, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**47]
NUMBERS = st.one_of(st.sampled_from(BOUNDS), st.integers(0, 2**62))


class Storage:
    """Stands for a tensor, and for its storage."""

    def __init__(self, address: int, size: int) -> None:
        self.untyped_storage = lambda: self
        self.data_ptr = lambda: address
        self.nbytes = lambda: size


@needs_compiled
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_blocks_are_the_same_in_bytes(blocks: list[tuple[int, int]]) -> None:
    def told(packs: bool) -> list[r.AnyRecord]:
        with pytest.MonkeyPatch.context() as patch:
            world = World(patch)
            recording: Any = world.recorder.recording
            packed = _core.Packed(encode_plain, encode_one, never, MAX_RAW, 1 << 30)
            start = len(world.seen)
            if packs:
                world.observer.outlet.sink = packed
            for address, size in blocks:
                recording.allocated(address)
                recording.seen(Storage(address, size), 0)
                recording.freed(address)
            return decode(packed.whole()) if packs else world.seen[start:]

    shown = [record for record in told(False) if isinstance(record, (r.Alloc, r.Free))]
    bytes_of = [record for record in told(True) if isinstance(record, (r.Alloc, r.Free))]
    assert len(shown) == 2 * len(blocks)
    assert bytes_of == shown
