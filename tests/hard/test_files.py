"""Trace files from elsewhere: one sentence, exit status 3, and what could be read is used."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.errors import EXIT_TRACE, TraceError
from streamsan.model.records import Access, AnyRecord, End, Note, Operation
from streamsan.trace import Writer, read
from tests.unit.samples import racy_run

HEADER = 12
MIB = 1 << 20


def written(path: Path, records: list[AnyRecord], batch: int = 4) -> bytes:
    """The bytes of a trace of `records`."""
    writer = Writer(path, force=True, batch=batch)
    for record in records:
        writer.write(record)
    writer.close()
    return path.read_bytes()


def frame(raw: bytes) -> bytes:
    """A good frame around whatever bytes."""
    payload = zstandard.ZstdCompressor().compress(raw)
    return struct.pack("<III", len(payload), len(raw), zlib.crc32(payload)) + payload


def frames(content: bytes) -> Iterator[bytes]:
    """The frames of a trace."""
    position = HEADER
    while position < len(content):
        length = 12 + int.from_bytes(content[position : position + 4], "little")
        yield content[position : position + length]
        position += length


def readable(path: Path) -> tuple[list[AnyRecord], str]:
    """The records that can be read, and what is said about the rest."""
    records: list[AnyRecord] = []
    try:
        records.extend(read(path))
    except TraceError as error:
        return records, str(error)
    return records, ""


def check(path: Path, memory: int) -> subprocess.CompletedProcess[str]:
    """Run ``streamsan check`` with no more than `memory` bytes of address space."""
    return subprocess.run(
        [sys.executable, "-m", "streamsan", "check", str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )


def test_a_cut_at_every_byte(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", racy_run())
    path = tmp_path / "cut"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        records, message = readable(path)
        assert records == racy_run()[: len(records)]
        assert message
        assert "\n" not in message


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.integers(0, 200), st.booleans())
def test_any_bytes_behind_any_beginning(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, start: int, framed: bool
) -> None:
    path = tmp_path_factory.mktemp("noise") / "t"
    whole = written(path, racy_run())
    path.write_bytes(whole[:start] + (frame(noise) if framed else noise))
    records, message = readable(path)
    good = len(records) if start else 0
    assert records[:good] == racy_run()[:good]
    assert message
    assert "\n" not in message


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_frames_in_any_order_are_read_and_checked(
    tmp_path_factory: pytest.TempPathFactory, chance: st.DrawFn
) -> None:
    path = tmp_path_factory.mktemp("order") / "t"
    whole = written(path, racy_run(), batch=1)
    mixed = list(frames(whole))
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    path.write_bytes(whole[:HEADER] + b"".join(mixed))
    records, message = readable(path)
    assert sorted(map(repr, records)) == sorted(map(repr, racy_run()))
    assert not message or "stops before its program ended" in message


TINY = msgspec.msgpack.encode(["note", "", ""])
NOTHING = msgspec.msgpack.encode([0, 0, 1, [], [], 1, ""])
BOMBS = {
    "a count of four thousand million": b"\xdd\xff\xff\xff\xff",
    "a million records": b"\xdd" + (1_000_000).to_bytes(4, "big") + TINY * 1_000_000,
    "an endless text": msgspec.msgpack.encode([["note", "info", "x" * (17 * MIB)]]),
    "nested arrays": b"\x91" * MIB,
    "a map for an array": b"\xdf\xff\xff\xff\xff",
    "not a byte": b"",
    "an access of no mode": msgspec.msgpack.encode(
        [["op", 1, 0, "k", 1, 0, 0, [[0, 0, 4, [], [], 9, ""]]]]
    ),
    "a number of 300 bits as text": msgspec.msgpack.encode([["end", "9" * 90, 0.0]]),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_frame_that_promises_too_much(tmp_path: Path, what: str) -> None:
    path = tmp_path / "t"
    whole = written(path, racy_run())
    path.write_bytes(whole + frame(BOMBS[what]))
    done = check(path, 600 * MIB)
    assert done.returncode == EXIT_TRACE, done.stderr
    assert done.stderr.count("\n") == 1
    assert "is damaged" in done.stderr
    assert "1 race" in done.stdout


def test_many_bombs_cost_what_one_costs(tmp_path: Path) -> None:
    accesses = b"\xdd" + (400_000).to_bytes(4, "big") + NOTHING * 400_000
    head = msgspec.msgpack.encode(["op", 1, 0, "k", 1, 0, 0])
    record = b"\x98" + head[1:] + accesses
    path = tmp_path / "t"
    whole = written(path, racy_run()[:-1])
    path.write_bytes(whole + frame(b"\x91" + record) * 5)
    done = check(path, 900 * MIB)
    assert done.returncode == EXIT_TRACE, done.stderr
    assert "stops before its program ended" in done.stderr


def test_a_record_too_large_for_a_frame_is_told(tmp_path: Path) -> None:
    access = Access(0, 1, 4, (), (), 1, "x" * 1000)
    large = Operation(1, 0, "kernel", 1, 0, 0, (access,) * 20_000)
    written(tmp_path / "t", [large, End(0, 1.0)])
    first, last = read(tmp_path / "t")
    assert isinstance(first, Note)
    assert "too large for the trace" in first.text
    assert last == End(0, 1.0)
