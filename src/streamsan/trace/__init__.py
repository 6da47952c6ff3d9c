r"""The trace file: the records of a run on disk, written while it runs and readable at any moment.

Byte layout, all integers little-endian:

    header   8 bytes  magic ``\x89SSAN\r\n\x1a``
             4 bytes  format version, unsigned (now 1)
    frame    4 bytes  length of the payload, unsigned
             4 bytes  length of the decompressed payload, unsigned, at most 16 MiB
             4 bytes  CRC-32 of the payload
             payload  one zstd frame that declares its size; inside, one msgpack array of
                      at most 65,536 records
    ...      frame after frame, to the end of the file

The magic starts with a byte above 127 and holds a line end of both kinds, as PNG's does, so that a
transfer in text mode shows. Frames stand alone: whatever follows a damaged or unfinished one is
not read, and everything before it is good. A run that ended properly has an End record last.

`Writer` writes, `read` reads; `encode`, `decode` and `decode_each` do so for the msgpack arrays
alone, which also go to a checker in another process; `encode_one` and `encode_plain` for an entry
of one, whose entries `count` tells. A file is locked while it is written: two runs cannot share
one. Errors are `UsageError` (a path that cannot be written) and `TraceError` (a file that cannot be
read, or not to its end).
"""

from streamsan.trace._batches import count, decode, decode_each, encode, encode_one, encode_plain
from streamsan.trace._format import MAX_RAW
from streamsan.trace._read import read
from streamsan.trace._write import Writer

__all__ = [
    "MAX_RAW",
    "Writer",
    "count",
    "decode",
    "decode_each",
    "encode",
    "encode_one",
    "encode_plain",
    "read",
]
