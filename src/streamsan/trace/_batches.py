"""Batches: records as one msgpack array, in a frame of the trace file and on the way to a process.

Who reads one checks every value, as a trace is a file that nobody vouches for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from streamsan.model.records import AnyRecord, Note
from streamsan.trace._format import MAX_RAW, MAX_RECORDS


def encode(records: Sequence[AnyRecord]) -> Iterator[bytes]:
    """`records` as arrays of at most MAX_RAW bytes; a record that is larger becomes a note.

    Raises TypeError for a value that no record may hold.
    """
    raw = _encode(records)
    if len(raw) <= MAX_RAW:
        yield raw
    elif len(records) > 1:
        middle = len(records) // 2
        yield from encode(records[:middle])
        yield from encode(records[middle:])
    else:
        yield _encode([_too_large(raw)])


def encode_one(record: AnyRecord) -> bytes:
    """A record as an entry of such an array; one that is larger than MAX_RAW becomes a note.

    Raises TypeError for a value that no record may hold.
    """
    raw = _encode(record)
    return raw if len(raw) <= MAX_RAW else _encode(_too_large(raw))


def decode(raw: bytes) -> list[AnyRecord]:
    """The records of an array. Raises ValueError (msgspec's errors are some) for a bad one."""
    if count(raw) > MAX_RECORDS:
        raise ValueError
    return _DECODER.decode(raw)


def decode_each(raw: bytes) -> Iterator[AnyRecord | ValueError]:
    """The records of an array one by one, with an error in place of each that is none."""
    return map(_decode_one, msgspec.msgpack.decode(raw, type=list[msgspec.Raw]))


def _too_large(raw: bytes) -> Note:
    return Note("blind-spot", f"a record of {len(raw):,} bytes, too large for the trace")


def _decode_one(raw: msgspec.Raw) -> AnyRecord | ValueError:
    try:
        return msgspec.msgpack.decode(raw, type=AnyRecord)
    except ValueError as error:
        return error


def _encode(records: Sequence[AnyRecord] | AnyRecord) -> bytes:
    try:
        return _ENCODER.encode(records)
    except UnicodeEncodeError:  # a file's name that is no text
        return _ENCODER.encode(_legible(msgspec.to_builtins(records, enc_hook=_plain)))


def _legible(value: Any) -> Any:
    """A value with all that is no text in its strings written out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [_legible(item) for item in value]
    if isinstance(value, dict):
        return {_legible(key): _legible(item) for key, item in value.items()}
    return value


def _plain(value: object) -> object:
    """A value of a subclass of `str` or `int`, such as a version of torch, as the plain type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"a record holds a {type(value).__name__}")


def count(raw: bytes) -> int:
    """How many entries a msgpack array says it has. Raises ValueError where it is none."""
    first = raw[0] if raw else 0
    if 0x90 <= first < 0xA0:
        return first & 0x0F
    if first in (0xDC, 0xDD):
        return int.from_bytes(raw[1 : 3 if first == 0xDC else 5], "big")
    raise ValueError


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER = msgspec.msgpack.Decoder(list[AnyRecord])

encode_plain: Callable[[AnyRecord], bytes] = _ENCODER.encode
"""`encode_one` by the library's own function: it raises for names that are no text, and looks at no
size.
"""
