"""The trace file: what is written is read back, and every bad file is an error in words."""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsan.errors import TraceError, UsageError
from streamsan.model.records import AnyRecord, End, Header, Note
from streamsan.trace import Writer, read
from tests.unit.samples import racy_records, racy_run

HEADER = 12


def write(path: Path, records: list[AnyRecord], batch: int = 4) -> Path:
    """Write `records` to a new trace at `path`."""
    writer = Writer(path, batch=batch)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def read_until_error(path: Path) -> tuple[list[AnyRecord], str]:
    """The records before the error, and the error's text."""
    records: list[AnyRecord] = []
    with pytest.raises(TraceError) as caught:
        records.extend(read(path))
    return records, str(caught.value)


def frame(payload: bytes, raw_length: int, checksum: int | None = None) -> bytes:
    """A frame around `payload`."""
    crc = zlib.crc32(payload) if checksum is None else checksum
    return struct.pack("<III", len(payload), raw_length, crc) + payload


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A good trace."""
    return write(tmp_path / "run.streamsan", racy_run())


def test_round_trip(trace: Path) -> None:
    assert list(read(trace)) == racy_run()


def test_large_numbers_survive(tmp_path: Path) -> None:
    records = [*racy_records(), End(-1, 2**62 + 0.5)]
    assert list(read(write(tmp_path / "t", records))) == records


class Version(str):
    """A string of a type of its own, as torch's version is."""

    __slots__ = ()


def test_subclasses_of_plain_types(tmp_path: Path) -> None:
    records: list[AnyRecord] = [Header("cuda", {"torch": Version("2.13")}, (), {}), End(0, 1.0)]
    assert list(read(write(tmp_path / "t", records))) == records


def test_pending_records_are_written_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = Writer(path, interval=0.01)
    writer.write(Note("info", "first"))
    deadline = time.monotonic() + 10
    while path.stat().st_size == HEADER and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read_until_error(path)[0] == [Note("info", "first")]
    writer.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # it is: Python 3.12
def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = Writer(path)
    writer.write(Note("info", "parent"))
    child = os.fork()
    if not child:
        writer.write(Note("info", "child"))
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    writer.write(End(0, 1.0))
    writer.close()
    assert list(read(path)) == [Note("info", "parent"), End(0, 1.0)]


def test_an_existing_file_is_kept(trace: Path) -> None:
    before = trace.read_bytes()
    with pytest.raises(UsageError, match=r"exists already.*--force"):
        Writer(trace)
    assert trace.read_bytes() == before


def test_force_overwrites(trace: Path) -> None:
    writer = Writer(trace, force=True)
    writer.write(End(0, 1.0))
    writer.close()
    assert list(read(trace)) == [End(0, 1.0)]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        Writer(tmp_path / "missing" / "t")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_from_the_start() -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        Writer(Path("/dev/full"), force=True)


def test_a_disk_that_fills_up(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(trace, force=True, batch=1)
    writer.write(Note("info", "good"))

    def refuse(_: list[AnyRecord]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_write_frames", refuse)
    with pytest.raises(OSError, match="No space"):
        writer.write(Note("info", "bad"))
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space"):
        writer.close()
    assert read_until_error(trace)[0] == [Note("info", "good")]


def test_without_end_record(tmp_path: Path) -> None:
    path = write(tmp_path / "t", racy_records())
    records, message = read_until_error(path)
    assert records == racy_records()
    assert "stops before its program ended" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty", b"", "is empty"),
        ("foreign", b"#!/bin/sh\necho hello\n", "not a StreamSan trace"),
        ("short header", b"\x89SSAN", "cut short"),
        ("newer", b"\x89SSAN\r\n\x1a" + struct.pack("<I", 9), "has format 9"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_headers(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    records, text = read_until_error(path)
    assert not records
    assert message in text


def test_no_file_and_no_file_but_a_folder(tmp_path: Path) -> None:
    assert "there is no trace" in read_until_error(tmp_path / "missing")[1]
    assert "is a directory" in read_until_error(tmp_path)[1]


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        (
            "no size declared",
            frame(zstandard.ZstdCompressor(write_content_size=False).compress(b"\x90"), 1),
        ),
        ("other size declared", frame(zstandard.compress(b"\x90" * 9), 1)),
        ("bomb", frame(zstandard.compress(bytes(100 << 20)), 100 << 20)),
        ("hidden bomb", frame(zstandard.compress(bytes(100 << 20)), 1)),
        ("absurd length", struct.pack("<III", 0xFFFFFFFF, 1, 0)),
        ("checksum", frame(zstandard.compress(b"\x90"), 1, checksum=1)),
        ("no zstd", frame(b"hello", 5)),
        ("no msgpack", frame(zstandard.compress(b"\xc1"), 1)),
        ("no records", frame(zstandard.compress(msgspec.msgpack.encode(["hello"])), 7)),
        ("unknown record", frame(zstandard.compress(msgspec.msgpack.encode([["?"]])), 4)),
        ("deep", frame(zstandard.compress(b"\x91" * 100_000), 100_000)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_frame_after_good_ones(trace: Path, what: str, bad: bytes) -> None:
    with trace.open("ab") as file:
        file.write(bad)
    records, message = read_until_error(trace)
    assert records == racy_run(), what
    assert "damaged" in message


@given(cut=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_every_cut_leaves_a_readable_beginning(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = write(tmp_path_factory.mktemp("cut") / "t", racy_run())
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])
    records, _ = read_until_error(path)
    assert records == racy_run()[: len(records)]


@given(place=st.integers(HEADER, 10_000), change=st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_every_changed_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    path = write(tmp_path_factory.mktemp("changed") / "t", racy_run())
    content = bytearray(path.read_bytes())
    content[HEADER + place % (len(content) - HEADER)] ^= change
    path.write_bytes(content)
    records, _ = read_until_error(path)
    assert records == racy_run()[: len(records)]


def test_progress_reaches_the_end(trace: Path) -> None:
    seen: list[tuple[int, int]] = []
    list(read(trace, lambda position, size: seen.append((position, size))))
    size = trace.stat().st_size
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)
