"""Reading a trace, up to where it is good, from a file that nobody vouches for."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from streamsan.errors import TraceError
from streamsan.model.records import AnyRecord, End
from streamsan.trace._batches import decode
from streamsan.trace._format import FRAME, HEADER, MAGIC, MAX_PAYLOAD, MAX_RAW, VERSION

Progress = Callable[[int, int], None]
"""Told, after each frame, the bytes read so far and the size of the file (0: not known)."""


def read(path: Path, progress: Progress | None = None) -> Iterator[AnyRecord]:
    """Yield the records of the trace at `path`, in order.

    Raises TraceError, after every good record, if the file is no trace, is of a newer format, is
    damaged, or stops before the End record.
    """
    last: AnyRecord | None = None
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_header(path, file)
        position = HEADER.size
        while frame := _read_frame(path, file):
            records, length = frame
            position += length
            yield from records
            last = records[-1] if records else last
            if progress:
                progress(position, size)
    if not isinstance(last, End):
        raise TraceError(
            f"the trace {path} stops before its program ended (killed, or still running?): "
            "what it holds was checked; record the program to its end for the rest"
        )


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise TraceError(f"there is no trace {path}: check the path") from None
    except IsADirectoryError:
        raise TraceError(f"{path} is a directory: name the trace file in it") from None
    except OSError as error:
        raise TraceError(
            f"the trace {path} cannot be opened ({error.strerror}): check its permissions"
        ) from None


def _check_header(path: Path, file: BinaryIO) -> None:
    header = _read_bytes(path, file, HEADER.size)
    if not header:
        raise TraceError(f"the trace {path} is empty: record the program again")
    if not header.startswith(MAGIC) and not MAGIC.startswith(header):
        raise TraceError(
            f"{path} is not a StreamSan trace: name a file written by `streamsan run --trace`"
        )
    if len(header) < HEADER.size:
        raise _cut_short(path)
    version = HEADER.unpack(header)[1]
    if version != VERSION:
        raise TraceError(
            f"the trace {path} has format {version}, this StreamSan reads format {VERSION}: "
            "check it with the version that wrote it"
        )


def _read_frame(path: Path, file: BinaryIO) -> tuple[list[AnyRecord], int] | None:
    """The records of the next frame and its length in bytes; None at the end of the file."""
    head = _read_bytes(path, file, FRAME.size)
    if not head:
        return None
    if len(head) < FRAME.size:
        raise _cut_short(path)
    length, raw_length, checksum = FRAME.unpack(head)
    if length > MAX_PAYLOAD or raw_length > MAX_RAW:
        raise _damaged(path)
    payload = _read_bytes(path, file, length)
    if len(payload) < length:
        raise _cut_short(path)
    if zlib.crc32(payload) != checksum:
        raise _damaged(path)
    try:
        return decode(_decompress(payload, raw_length)), FRAME.size + length
    except (zstandard.ZstdError, ValueError, RecursionError):
        raise _damaged(path) from None


def _decompress(payload: bytes, length: int) -> bytes:
    # The size that the zstd frame declares is what gets allocated, so it has to be the checked one.
    if zstandard.frame_content_size(payload) != length:
        raise ValueError
    return zstandard.ZstdDecompressor().decompress(payload, max_output_size=length)


def _read_bytes(path: Path, file: BinaryIO, length: int) -> bytes:
    try:
        return file.read(length)
    except OSError as error:
        raise TraceError(
            f"the trace {path} cannot be read ({error.strerror}): check the disk"
        ) from None


def _cut_short(path: Path) -> TraceError:
    return TraceError(
        f"the trace {path} is cut short in the middle of a frame (killed, or the disk full?): "
        "what comes before was checked; record again for the rest"
    )


def _damaged(path: Path) -> TraceError:
    return TraceError(
        f"the trace {path} is damaged: what comes before was checked; copy it again in binary "
        "mode, or record again"
    )
